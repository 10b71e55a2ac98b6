package main

import (
	"context"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/nodecert"
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

// authority is what a file of certificates looks like.
func authority(name string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
}

func TestTheGatewaysCopiesFollowTheirOriginals(t *testing.T) {
	dir := t.TempDir()
	ca := put(t, dir+"/ca.crt", authority("first"))
	loaded := load(t, "--cert-dir="+dir+"/pki", "--client-ca-file="+ca, "--hostname-override=n1", "--node-ip=10.0.0.1")
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
	for _, name := range []string{"--tls-cert-file=", "--tls-private-key-file=", "--client-ca-file="} {
		if !strings.Contains(all, name+target) {
			t.Errorf("flags lack %s: %s", name, all)
		}
	}
	copied := filepath.Join(target, "client-ca.crt")
	got, err := os.ReadFile(copied)
	info, statErr := os.Stat(copied)
	if err != nil || statErr != nil || string(got) != authority("first") || info.Mode().Perm() != 0o640 {
		t.Errorf("%q %v %v", got, err, info.Mode())
	}
	if _, err := os.Stat(dir + "/pki/kubelet.crt"); err != nil {
		t.Errorf("no self-signed certificate: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.follow(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	deadline := time.Now().Add(30 * time.Second)
	for {
		// Written again each time: the watch may not have stood at the first.
		put(t, ca, authority("second"))
		if got, _ := os.ReadFile(copied); string(got) == authority("second") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a changed CA did not arrive")
		}
		time.Sleep(2 * settle)
	}
}

// The gateway's user may have another number than when the copies were made:
// by an agent of the release before, or before users were made.
// A file is empty while somebody writes it anew, and stays so on a disk that is full.
func TestAnEmptyFileTakesNothingFromTheGateway(t *testing.T) {
	dir := t.TempDir()
	ca := put(t, dir+"/ca.crt", authority("good"))
	c := newCredentials(klog.Background(), load(t, "--cert-dir="+dir+"/pki", "--client-ca-file="+ca, "--hostname-override=n1"), dir, supervise.Identity{Drop: true, GID: os.Getgid()})
	for _, text := range []string{authority("good"), ""} {
		put(t, ca, text)
		if _, err := c.write(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(dir + "/client-ca.crt"); err != nil || string(got) != authority("good") {
			t.Errorf("with %q the gateway got %q, %v", text, got, err)
		}
	}
}

func TestCopiesOfAnEarlierAgentAreTheGatewaysAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to other users")
	}
	dir := t.TempDir()
	loaded := load(t, "--cert-dir="+dir+"/pki", "--hostname-override=n1", "--node-ip=10.0.0.1")
	for _, gid := range []int{65532, 60801} {
		c := newCredentials(klog.Background(), loaded, dir, supervise.Identity{Drop: true, GID: gid})
		if _, err := c.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir + "/tls.key")
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Gid; int(got) != gid || info.Mode() != 0o640 {
			t.Errorf("the key's group is %d, mode %v; want the gateway's, %d, 0640", got, info.Mode(), gid)
		}
	}
}

// What leads to the apiserver stays where only root and nodestatus read it: the
// gateway is what the network can reach, and asks through nodestatus.
func TestCopiesForAnotherGroupAreWrittenAnew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to groups")
	}
	dir := t.TempDir()
	for _, gid := range []int{60901, 60902} {
		c := newCredentials(klog.Background(), load(t, "--cert-dir="+dir, "--hostname-override=n1"), dir, supervise.Identity{Drop: true, GID: gid})
		path, err := c.put("tls.key", []byte("the same"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Gid) != gid || info.Mode() != 0o640 {
			t.Errorf("group %d: %v, %+v", gid, info.Mode(), st)
		}
	}
}

func TestTheGatewayHasNoCredentialOfTheNode(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := put(t, dir+"/etc/kubelet.conf", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://x"}}]
users: [{name: u, user: {client-certificate: pki/client.pem, client-key: pki/client.pem, token: SECRET-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`)
	put(t, dir+"/etc/pki/client.pem", "SECRET-key")
	bootstrap := put(t, dir+"/etc/bootstrap.conf", "SECRET-bootstrap")
	sockets := filepath.Join(dir, "run")
	loaded := load(t, "--kubeconfig="+kubeconfig, "--bootstrap-kubeconfig="+bootstrap, "--cert-dir="+dir+"/pki", "--hostname-override=n1",
		"--socket-dir="+sockets, "--socket-group="+strconv.Itoa(os.Getgid()), "--gateway-user=4711", "--probes-user=4712", "--anonymous-auth=false")
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to other users")
	}
	// An agent of the release before, whose gateway asked the apiserver itself, was killed.
	put(t, sockets+"/gateway/kubeconfig", "SECRET-kubeconfig")
	put(t, sockets+"/gateway/client.key", "SECRET-key")
	if err := handOut(t.Context(), loaded, false); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(sockets, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		seen++
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "SECRET") || slices.Contains([]string{"kubeconfig", "client.key", "client.crt", "token"}, entry.Name()) {
			t.Errorf("%s is handed out: %.80q", path, data)
		}
		return err
	})
	if err != nil || seen < 3 {
		t.Errorf("%d files are handed out, %v", seen, err)
	}
	// It still knows that there is an apiserver, and that it has to ask.
	args, err := os.ReadFile(filepath.Join(sockets, "gateway", argsFile))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(args), "POLYLET_ARGS='"), "'\n")
	cfg, err := gatewayConfig(load(t, strings.Fields(text)...))
	if err != nil || cfg.Standalone {
		t.Errorf("standalone %v, %v", cfg.Standalone, err)
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

// What is empty is not the same as what nobody has set: a list that is empty would
// have its default in the copy, and what goes with it could be refused there.
func TestACopyOfTheConfigurationIsTheSameConfiguration(t *testing.T) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"
	for name, fields := range map[string]string{
		"nothing set":         "",
		"no eviction":         "evictionHard: {}\n",
		"nothing enforced":    "enforceNodeAllocatable: []\n",
		"no cgroups of pods":  "cgroupsPerQOS: false\nenforceNodeAllocatable: []\n",
		"some of all of them": "evictionHard: {memory.available: 1Mi}\nenforceNodeAllocatable: [pods]\nregisterWithTaints: []\nallowedUnsafeSysctls: []\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sameCopy(t, dir, load(t, "--config="+put(t, dir+"/config.yaml", header+fields)))
		})
	}
	t.Run("no file", func(t *testing.T) {
		sameCopy(t, t.TempDir(), load(t, "--fail-cgroupv1=false", "--max-pods=3"))
	})
}

func sameCopy(t *testing.T, dir string, loaded *kubeletconfig.Loaded) {
	t.Helper()
	flags, err := writeConfigCopy(dir, loaded, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	again := load(t, flags...)
	if !sameDocument(again.ConfigzJSON(), loaded.ConfigzJSON()) {
		t.Errorf("the copy\n%s\nis another configuration than\n%s", again.ConfigzJSON(), loaded.ConfigzJSON())
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

// --socket-dir=/run would lock everybody out of /run.
func TestADirectoryOfTheMachineIsNoSocketDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// What an earlier agent left is polylet's.
	for _, name := range []string{"podsync.sock", "stats.d", "gateway"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mode := func() os.FileMode {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	put(t, filepath.Join(dir, "dbus"), "")
	if err := ownSocketDir(dir, os.Getgid()); err == nil || !strings.Contains(err.Error(), "dbus") || mode() != 0o755 {
		t.Errorf("mode %v, error %v", mode(), err)
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := ownSocketDir(dir, os.Getgid()); err != nil {
		t.Errorf("a directory that does not change for anybody: %v", err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Remove(filepath.Join(dir, "dbus"))); err != nil {
		t.Fatal(err)
	}
	if err := ownSocketDir(dir, os.Getgid()); err != nil || mode() != 0o750 {
		t.Errorf("mode %v, error %v", mode(), err)
	}
	if err := ownSocketDir(filepath.Join(dir, "new", "one"), os.Getgid()); err != nil {
		t.Error(err)
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
	done := make(chan struct{})
	go func() { c.follow(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	store, copied := nodecert.Store{Dir: pki, Prefix: nodecert.Serving}, filepath.Join(target, "kubelet-server-current.pem")
	copiedIs := func(pair *nodecert.Pair) {
		t.Helper()
		deadline := time.Now().Add(30 * time.Second)
		for {
			if got, _ := os.ReadFile(copied); string(got) == string(pair.PEM()) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the certificate was not copied")
			}
			time.Sleep(20 * time.Millisecond) // inotify: no bubble
		}
	}
	var pair *nodecert.Pair
	for i := range 2 {
		pair = selfSigned(t, "n1")
		if err := store.Write(pair, time.Now().Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		copiedIs(pair)
	}
	// Of another file nothing is copied, nor of what stands beside a certificate.
	secret := put(t, dir+"/shadow", "root:SECRET")
	if err := errors.Join(os.Remove(store.CurrentPath()), os.Symlink(secret, store.CurrentPath())); err != nil {
		t.Fatal(err)
	}
	if _, err := c.copyAll(); err != nil {
		t.Errorf("with a link to another file: %v", err)
	}
	copiedIs(pair)
	put(t, dir+"/mixed.pem", "SECRET\n"+string(pair.PEM())+"SECRET\n")
	if err := errors.Join(os.Remove(store.CurrentPath()), os.Symlink(dir+"/mixed.pem", store.CurrentPath())); err != nil {
		t.Fatal(err)
	}
	if _, err := c.copyAll(); err != nil {
		t.Error(err)
	}
	copiedIs(pair)
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info, err)
	}
	// The gateway, which has the copies' flags, waits for the same file.
	cfg, err := gatewayConfig(load(t, "--config="+config, flags[0], "--hostname-override=n1"))
	if err != nil || cfg.CertFile != copied || cfg.KeyFile != copied || !cfg.WaitForCert || cfg.FallbackCertFile != "" {
		t.Errorf("%q %q %v %q, %v", cfg.CertFile, cfg.KeyFile, cfg.WaitForCert, cfg.FallbackCertFile, err)
	}
}

func TestWithoutTheServerTheReadOnlyPortStays(t *testing.T) {
	dir := t.TempDir()
	config := put(t, dir+"/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nenableServer: false\nreadOnlyPort: 10255\n")
	cfg, err := gatewayConfig(load(t, "--config="+config, "--hostname-override=n1"))
	if err != nil || cfg.SecureAddress != "" || cfg.ReadOnlyAddress != "0.0.0.0:10255" {
		t.Errorf("secure %q, read-only %q, %v", cfg.SecureAddress, cfg.ReadOnlyAddress, err)
	}
}
