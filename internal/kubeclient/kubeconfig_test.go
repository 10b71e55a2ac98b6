package kubeclient

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/nodecert"
)

// `kubeadm kubeconfig user > kubelet.conf` leaves the file empty until it has made a key.
func TestAKubeconfigThatSomebodyIsWritingIsNotReplaced(t *testing.T) {
	a := serve(t)
	dir := t.TempDir()
	s := Source{Kubeconfig: filepath.Join(dir, "kubelet.conf"), Bootstrap: filepath.Join(dir, "bootstrap.conf"), Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}}
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	if err := s.Store.Write(made(t, "joined", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if written, err := WriteKubeconfig(s, time.Now()); written || err != nil {
		t.Errorf("a moment after it was made empty: %v, %v", written, err)
	}
	if info, err := os.Stat(s.Kubeconfig); err != nil || info.Size() != 0 {
		t.Errorf("it is not what it was: %v", err)
	}
	if written, err := WriteKubeconfig(s, time.Now().Add(writtenWithin)); !written || err != nil {
		t.Errorf("after a while: %v, %v", written, err)
	}
	if asides, _ := filepath.Glob(s.Kubeconfig + ".damaged-*"); len(asides) != 1 {
		t.Errorf("set aside: %v", asides)
	}
}

func TestAKubeconfigThatWaitsForItsCertificateFollowsTheBootstrapKubeconfig(t *testing.T) {
	a, b := serve(t), serve(t)
	s := joining(t)
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	server := func() string {
		got, err := clientcmd.LoadFromFile(s.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return got.Clusters["default-cluster"].Server
	}
	if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil || server() != a.URL {
		t.Fatalf("%v, %v: %s", written, err, server())
	}
	b.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil || server() != b.URL {
		t.Errorf("of another cluster: %v, %v: %s", written, err, server())
	}
	if err := errors.Join(os.MkdirAll(s.Store.Dir, 0o755), s.Store.Write(made(t, "joined", time.Now().Add(time.Hour)), time.Now())); err != nil {
		t.Fatal(err)
	}
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	if written, err := WriteKubeconfig(s, time.Now()); written || err != nil || server() != b.URL {
		t.Errorf("of a node that has joined: %v, %v: %s", written, err, server())
	}
}

func TestAKubeconfigThatCouldNotBeWrittenIsNotSaidToBe(t *testing.T) {
	a := serve(t)
	s := joining(t)
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	s.Kubeconfig = filepath.Join(filepath.Dir(s.Kubeconfig), strings.Repeat("k", 255)) // the name of what it is written to first is longer
	if written, err := WriteKubeconfig(s, time.Now()); written || err == nil {
		t.Errorf("%v, %v", written, err)
	}
}

func TestWhatACrashHasLeftOfAKubeconfigGoesWithTheNextWrite(t *testing.T) {
	a := serve(t)
	s := joining(t)
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	dir, name := filepath.Split(s.Kubeconfig)
	left, other := filepath.Join(dir, "."+name+fsatomic.TemporaryMark+"1"), filepath.Join(dir, ".other"+fsatomic.TemporaryMark+"1")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(left, nil, 0o600), os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil {
		t.Fatalf("%v, %v", written, err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another's file is gone: %v", err)
	}
}

// Its certificate will be of the cluster that the bootstrap kubeconfig leads to.
func TestAKubeconfigWhoseCertificateHasEndedFollowsABootstrapKubeconfigThatCameLater(t *testing.T) {
	for name, tc := range map[string]struct {
		left, age time.Duration
		written   bool
	}{
		"it came later":                          {-time.Hour, -time.Minute, true},
		"it was left from before":                {-time.Hour, time.Minute, false},
		"it came later, the certificate is good": {time.Hour, -time.Minute, false},
	} {
		a, b := serve(t), serve(t)
		s := joining(t)
		a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
		if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil {
			t.Fatal(written, err)
		}
		if err := errors.Join(os.MkdirAll(s.Store.Dir, 0o755), s.Store.Write(made(t, "joined", time.Now().Add(tc.left)), time.Now())); err != nil {
			t.Fatal(err)
		}
		b.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
		at := time.Now().Add(-tc.age)
		if err := os.Chtimes(s.Bootstrap, at, at); err != nil {
			t.Fatal(err)
		}
		if written, err := WriteKubeconfig(s, time.Now()); written != tc.written || err != nil {
			t.Errorf("%s: %v, %v", name, written, err)
		}
		got, err := clientcmd.LoadFromFile(s.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if of := got.Clusters["default-cluster"].Server; (of == b.URL) != tc.written {
			t.Errorf("%s: it leads to %s", name, of)
		}
	}
}

// nodestatus mends it, and the bootstrap kubeconfig may be an old one that was left.
func TestAKubeconfigWhoseCertificateCannotBeReadJustNowIsNotReplaced(t *testing.T) {
	old, now := serve(t), serve(t)
	s := joining(t)
	old.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	now.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	if err := errors.Join(os.MkdirAll(s.Store.Dir, 0o755), os.WriteFile(s.Store.CurrentPath(), []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if written, err := WriteKubeconfig(s, time.Now()); written || err != nil {
		t.Errorf("%v, %v", written, err)
	}
	got, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil || got.Clusters["c"] == nil || got.Clusters["c"].Server != now.URL {
		t.Errorf("it is another now: %v, %v", got, err)
	}
}

// Somebody has made it, and there is nothing better yet.
func TestAKubeconfigOfAnOperatorStaysUntilThereIsACertificateInTheStore(t *testing.T) {
	a := serve(t)
	for name, write := range map[string]func(path string) error{
		"it names files that are gone": func(path string) error {
			a.write(t, path, api.AuthInfo{ClientCertificate: "/gone.crt", ClientKey: "/gone.key"})
			return nil
		},
		"it names an authority that is gone": func(path string) error {
			return os.WriteFile(path, []byte(`{"clusters":[{"name":"c","cluster":{"server":"https://a","certificate-authority":"/gone.crt"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`), 0o600)
		},
		"it is broken": func(path string) error { return os.WriteFile(path, []byte("a: ["), 0o600) },
	} {
		s := joining(t)
		a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
		if err := errors.Join(os.MkdirAll(filepath.Dir(s.Kubeconfig), 0o755), os.MkdirAll(s.Store.Dir, 0o755), write(s.Kubeconfig)); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(writtenWithin)
		if written, err := WriteKubeconfig(s, later); written || err != nil {
			t.Errorf("%s: %v, %v", name, written, err)
		}
		if err := s.Store.Write(made(t, "joined", time.Now().Add(time.Hour)), time.Now()); err != nil {
			t.Fatal(err)
		}
		if written, err := WriteKubeconfig(s, later); !written || err != nil {
			t.Errorf("%s, and there is a certificate: %v, %v", name, written, err)
		}
		asides, _ := filepath.Glob(s.Kubeconfig + ".damaged-*")
		if kept := len(asides) == 1; kept != (name != "it names files that are gone") {
			t.Errorf("%s: set aside %v", name, asides)
		}
	}
}

// Of a full disk, say: what is written is the certificate, and kubeadm join gives up since
// there is no kubeconfig.
func TestAKubeconfigThatNobodyHasWrittenIsMissedThoughThereIsACertificate(t *testing.T) {
	a := serve(t)
	s := joining(t)
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	store(t, s, "node", time.Hour)
	f := Follow(s, logr.Discard())
	if got := ask(t, client(t, f), "https://whatever/x"); got != "node" {
		t.Errorf("asked as %q", got)
	}
	if p := f.Credential().Problem; !strings.Contains(p, "there is no kubeconfig "+s.Kubeconfig) || !strings.Contains(p, "polylet handout writes it, or logs why it cannot") || strings.Contains(p, "secret") {
		t.Errorf("it says %q", p)
	}
	if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil {
		t.Fatalf("%v, %v", written, err)
	}
	if f.Look(); f.Credential().Problem != "" {
		t.Errorf("it is there, and it says %q", f.Credential().Problem)
	}
}
