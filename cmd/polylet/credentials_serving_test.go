package main

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/supervise"
)

func TestTheServingCertificateIsMadeOnceAndNeverOverAConfiguredOne(t *testing.T) {
	dir := t.TempDir()
	loaded := load(t, "--cert-dir="+dir, "--hostname-override=n1")
	cert, key := loaded.ServingFiles()
	for range 2 {
		if err := ensureServing(klog.Background(), loaded, cert, key); err != nil {
			t.Fatal(err)
		}
	}
	first, err := os.ReadFile(cert)
	if err != nil || !strings.Contains(string(first), "BEGIN CERTIFICATE") {
		t.Fatalf("%v", err)
	}
	if err := ensureServing(klog.Background(), loaded, cert, key); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(cert); string(again) != string(first) {
		t.Error("made again")
	}
	configured := load(t, "--tls-cert-file="+dir+"/x", "--tls-private-key-file="+dir+"/y")
	cert, key = configured.ServingFiles()
	if err := ensureServing(klog.Background(), configured, cert, key); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cert); err == nil {
		t.Error("a configured certificate was invented")
	}
}

func TestADamagedServingCertificateIsSetAsideAndAnotherMade(t *testing.T) {
	for name, damage := range map[string]func(cert, key string) error{
		"an empty certificate": func(cert, _ string) error { return os.Truncate(cert, 0) },
		"half a key":           func(_, key string) error { return os.Truncate(key, 100) },
		"no key":               func(_, key string) error { return os.Remove(key) },
		"a directory":          func(cert, _ string) error { return errors.Join(os.Remove(cert), os.Mkdir(cert, 0o755)) },
		"a circle":             func(_, key string) error { return errors.Join(os.Remove(key), os.Symlink(key, key)) },
		"another's key": func(_, key string) error {
			return os.WriteFile(key, selfSigned(t, "other").Key, 0o600)
		},
	} {
		dir := t.TempDir()
		c := newCredentials(klog.Background(), load(t, "--cert-dir="+dir+"/pki", "--hostname-override=n1"), dir, supervise.Identity{Drop: true, GID: os.Getgid()})
		if _, err := c.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		cert, key := c.loaded.Load().ServingFiles()
		if err := damage(cert, key); err != nil {
			t.Fatal(err)
		}
		if _, err := c.write(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := tls.LoadX509KeyPair(dir+"/tls.crt", dir+"/tls.key"); err != nil {
			t.Errorf("%s: what the gateway gets: %v", name, err)
		}
		if asides, _ := filepath.Glob(dir + "/pki/*.damaged-*"); len(asides) == 0 {
			t.Errorf("%s: nothing is set aside", name)
		}
	}
}

// The directory may be nodestatus', where root reads what the gateway gets.
func TestNothingButACertificateAndItsKeyLeavesTheDirectoryOfCertificates(t *testing.T) {
	for name, flags := range map[string]func(pki string) []string{
		"by default": func(string) []string { return nil },
		"named": func(pki string) []string {
			return []string{"--tls-cert-file=" + pki + "/kubelet.crt", "--tls-private-key-file=" + pki + "/kubelet.key"}
		},
	} {
		t.Run(name, func(t *testing.T) { nothingElseLeaves(t, flags) })
	}
}

func nothingElseLeaves(t *testing.T, flags func(pki string) []string) {
	dir := t.TempDir()
	pair := selfSigned(t, "n1")
	put(t, dir+"/pki/kubelet.crt", string(pair.Cert))
	put(t, dir+"/pki/kubelet.key", string(pair.Key))
	loaded := load(t, append(flags(dir+"/pki"), "--cert-dir="+dir+"/pki", "--hostname-override=n1")...)
	c := newCredentials(klog.Background(), loaded, dir, supervise.Identity{Drop: true, GID: os.Getgid()})
	if _, err := c.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(dir + "/tls.key")
	if err != nil {
		t.Fatal(err)
	}
	_, key := c.loaded.Load().ServingFiles()
	secret := put(t, dir+"/shadow", "root:SECRET")
	for name, instead := range map[string]func() error{
		"a link to a secret": func() error { return os.Symlink(secret, key) },
		"a pipe":             func() error { return syscall.Mkfifo(key, 0o600) },
	} {
		if err := errors.Join(os.Remove(key), instead()); err != nil {
			t.Fatal(err)
		}
		copied := make(chan error, 1)
		go func() {
			_, err := c.copyAll()
			copied <- err
		}()
		select {
		case err := <-copied:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is waited for", name)
		}
		if got, err := os.ReadFile(dir + "/tls.key"); err != nil || string(got) != string(want) {
			t.Errorf("%s: the gateway got %q, %v", name, got, err)
		}
	}
}

// Where the authority of clients lies in the directory, too, or the way to it leads there.
func TestNothingButCertificatesLeavesAsTheAuthorityOfClients(t *testing.T) {
	dir := t.TempDir()
	ca := put(t, dir+"/pki/sub/ca.crt", authority("CA")+"and words")
	c := newCredentials(klog.Background(), load(t, "--cert-dir="+dir+"/pki", "--client-ca-file="+ca, "--hostname-override=n1"), dir, supervise.Identity{Drop: true, GID: os.Getgid()})
	secret := put(t, dir+"/shadow", "root:SECRET")
	for _, instead := range []func() error{
		func() error { return nil },
		func() error { return errors.Join(os.Remove(ca), os.Symlink(secret, ca)) },
		func() error { return errors.Join(os.Remove(ca), syscall.Mkfifo(ca, 0o600)) },
	} {
		if err := instead(); err != nil {
			t.Fatal(err)
		}
		copied := make(chan error, 1)
		go func() {
			_, err := c.write(t.Context())
			copied <- err
		}()
		select {
		case err := <-copied:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a pipe is waited for")
		}
		if got, err := os.ReadFile(dir + "/client-ca.crt"); err != nil || string(got) != authority("CA") {
			t.Errorf("the gateway got %q, %v", got, err)
		}
	}
}

// The gateway serves healthz, too: it starts whatever is the matter with a certificate
// that nodestatus is to get.
func TestTheGatewayStartsThoughTheServingCertificateCannotBeReadOrKept(t *testing.T) {
	dir := t.TempDir()
	config := put(t, dir+"/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nserverTLSBootstrap: true\nauthentication: {x509: {clientCAFile: "+put(t, dir+"/ca.crt", authority("CA"))+"}}\n")
	store := nodecert.Store{Dir: dir + "/pki", Prefix: nodecert.Serving}
	for name, pki := range map[string]func() error{
		"--cert-dir is a file": func() error { return os.WriteFile(store.Dir, nil, 0o600) },
		"a link that leads back to itself": func() error {
			return errors.Join(os.Mkdir(store.Dir, 0o755), os.Symlink(store.CurrentPath(), store.CurrentPath()))
		},
		"a link through a file": func() error {
			return errors.Join(os.Mkdir(store.Dir, 0o755), os.Symlink(dir+"/ca.crt/x", store.CurrentPath()))
		},
	} {
		target := filepath.Join(dir, "gateway")
		if err := errors.Join(os.RemoveAll(target), os.RemoveAll(store.Dir), os.Mkdir(target, 0o750), pki()); err != nil {
			t.Fatal(err)
		}
		c := newCredentials(klog.Background(), load(t, "--config="+config, "--cert-dir="+store.Dir, "--hostname-override=n1"), target,
			supervise.Identity{Drop: true, GID: os.Getgid()})
		flags, err := c.write(t.Context())
		if err != nil || len(flags) != 2 {
			t.Errorf("%s: flags %q, %v", name, flags, err)
		}
		if text, err := os.ReadFile(target + "/client-ca.crt"); err != nil || string(text) != authority("CA") {
			t.Errorf("%s: the authority of clients: %q, %v", name, text, err)
		}
	}
}

// selfSigned makes a certificate and its key.
func selfSigned(t *testing.T, name string) *nodecert.Pair {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nodecert.Parse(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
