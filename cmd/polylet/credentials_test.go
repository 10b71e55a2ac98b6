package main

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/supervise"
)

func put(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, args ...string) *kubeletconfig.Loaded {
	t.Helper()
	loaded, err := kubeletconfig.Load(args)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestTheGatewaysCopiesFollowTheirOriginals(t *testing.T) {
	dir := t.TempDir()
	inline := base64.StdEncoding.EncodeToString([]byte("CA"))
	kubeconfig := put(t, dir+"/etc/kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://x", certificate-authority-data: `+inline+`}}, {name: other, cluster: {server: "https://y"}}]
users: [{name: u, user: {client-certificate: pki/client.pem, client-key: pki/client.pem}}, {name: secret, user: {token: leak}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`)
	client := put(t, dir+"/etc/pki/client.pem", "first")
	ca := put(t, dir+"/ca.crt", "client CA")
	loaded := load(t, "--kubeconfig="+kubeconfig, "--cert-dir="+dir+"/pki", "--client-ca-file="+ca, "--hostname-override=n1", "--node-ip=10.0.0.1")
	target := filepath.Join(dir, "gateway")
	if err := os.Mkdir(target, 0o750); err != nil {
		t.Fatal(err)
	}
	c := newCredentials(klog.Background(), loaded, target, supervise.Identity{Drop: true, GID: os.Getgid()})
	flags, err := c.write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(flags, " ")
	for _, name := range []string{"--tls-cert-file=", "--tls-private-key-file=", "--client-ca-file=", "--kubeconfig="} {
		if !strings.Contains(all, name+target) {
			t.Errorf("flags lack %s: %s", name, all)
		}
	}
	cfg, err := clientcmd.LoadFromFile(target + "/kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	if u := cfg.AuthInfos["u"]; u.ClientCertificate != target+"/client.crt" || len(u.ClientCertificateData) > 0 || len(cfg.AuthInfos) != 1 {
		t.Errorf("users %+v", cfg.AuthInfos)
	}
	for name, want := range map[string]string{"client.crt": "first", "apiserver-ca.crt": "CA", "client-ca.crt": "client CA"} {
		got, err := os.ReadFile(filepath.Join(target, name))
		info, statErr := os.Stat(filepath.Join(target, name))
		if err != nil || statErr != nil || string(got) != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %q %v %v", name, got, err, info.Mode())
		}
	}
	if _, err := os.Stat(dir + "/pki/kubelet.crt"); err != nil {
		t.Errorf("no self-signed certificate: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.follow(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	deadline := time.Now().Add(20 * time.Second)
	for {
		// Written again each time: the watch may not have stood at the first.
		put(t, client, "second")
		if got, _ := os.ReadFile(target + "/client.crt"); string(got) == "second" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a changed certificate did not arrive")
		}
		time.Sleep(2 * settle)
	}
}

func TestTheServingCertificateIsMadeOnceAndNeverOverAConfiguredOne(t *testing.T) {
	dir := t.TempDir()
	loaded := load(t, "--cert-dir="+dir, "--hostname-override=n1")
	cert, key := loaded.ServingFiles()
	for range 2 {
		if err := ensureServing(loaded, cert, key); err != nil {
			t.Fatal(err)
		}
	}
	first, err := os.ReadFile(cert)
	if err != nil || !strings.Contains(string(first), "BEGIN CERTIFICATE") {
		t.Fatalf("%v", err)
	}
	if err := ensureServing(loaded, cert, key); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(cert); string(again) != string(first) {
		t.Error("made again")
	}
	configured := load(t, "--tls-cert-file="+dir+"/x", "--tls-private-key-file="+dir+"/y")
	cert, key = configured.ServingFiles()
	if err := ensureServing(configured, cert, key); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cert); err == nil {
		t.Error("a configured certificate was invented")
	}
}

func TestAServiceThatMayNotReadTheConfigurationGetsACopyInEffect(t *testing.T) {
	dir := t.TempDir()
	file := put(t, dir+"/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nport: 1234\n")
	loaded := load(t, "--config="+file, "--max-pods=7")
	flags, err := writeConfigCopy(dir, loaded, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	again := load(t, append([]string{"--config=/not/readable"}, flags...)...)
	if again.Config.Port != 1234 || again.Config.MaxPods != 7 {
		t.Errorf("port %d, maxPods %d", again.Config.Port, again.Config.MaxPods)
	}
}

func TestADirectoryForAllIsNoSocketDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := ownDir(dir, -1); err == nil || !strings.Contains(err.Error(), "everybody") {
		t.Errorf("err = %v", err)
	}
	own := filepath.Join(dir, "a", "b")
	if err := ownDir(own, os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(own); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestACertificateFromTheApiserverReachesTheGatewayWhenItComesAndWhenItIsRotated(t *testing.T) {
	dir := t.TempDir()
	config := put(t, dir+"/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nserverTLSBootstrap: true\n")
	pki, target := filepath.Join(dir, "pki"), filepath.Join(dir, "gateway")
	if err := os.Mkdir(target, 0o750); err != nil {
		t.Fatal(err)
	}
	c := newCredentials(klog.Background(), load(t, "--config="+config, "--cert-dir="+pki, "--hostname-override=n1"), target,
		supervise.Identity{Drop: true, GID: os.Getgid()})
	flags, err := c.write(t.Context())
	if err != nil || len(flags) != 1 || flags[0] != "--cert-dir="+target {
		t.Fatalf("flags %q, %v", flags, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go c.follow(ctx)
	// As the certificate manager does: a file with a date, and a link that is moved.
	current, copied := filepath.Join(pki, "kubelet-server-current.pem"), filepath.Join(target, "kubelet-server-current.pem")
	for _, text := range []string{"first", "second"} {
		put(t, filepath.Join(pki, text+".pem"), text)
		if err := os.Symlink(filepath.Join(pki, text+".pem"), current+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(current+".new", current); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for {
			if got, _ := os.ReadFile(copied); string(got) == text {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the %s certificate was not copied", text)
			}
			time.Sleep(20 * time.Millisecond) // inotify: no bubble
		}
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info, err)
	}
	// The gateway, which has the copies' flags, waits for the same file.
	cfg, err := gatewayConfig(load(t, "--config="+config, flags[0], "--hostname-override=n1"))
	if err != nil || cfg.CertFile != copied || cfg.KeyFile != copied || !cfg.WaitForCert || cfg.FallbackCertFile != "" {
		t.Errorf("%q %q %v %q, %v", cfg.CertFile, cfg.KeyFile, cfg.WaitForCert, cfg.FallbackCertFile, err)
	}
}
