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
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/internal/nodecert"
)

func joining(t *testing.T) Source {
	t.Helper()
	dir := t.TempDir()
	return Source{Kubeconfig: filepath.Join(dir, "etc", "kubelet.conf"), Bootstrap: filepath.Join(dir, "bootstrap.conf"), Store: nodecert.Store{Dir: filepath.Join(dir, "pki"), Prefix: nodecert.Client}}
}

// kubeadm join removes the bootstrap kubeconfig when it gives up. Whoever approves may be
// later, and the node joins all the same, as with the kubelet.
func TestANodeJoinsThoughKubeadmHasGivenUp(t *testing.T) {
	a := serve(t)
	s := joining(t)
	if err := os.Mkdir(s.Store.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	f := Follow(s, logr.Discard())
	if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil {
		t.Fatalf("the kubeconfig: %v, %v", written, err)
	}
	if again, err := WriteKubeconfig(s, time.Now()); again || err != nil {
		t.Errorf("it is written again while the certificate is waited for: %v, %v", again, err)
	}
	f.Look()
	if p := f.Credential().Problem; !strings.HasPrefix(p, "the node has no client certificate yet: nodestatus asks for one") {
		t.Errorf("while it is waited for: %q", p)
	}
	if err := os.Remove(s.Bootstrap); err != nil {
		t.Fatal(err)
	}
	f.Look()
	bootstrap, err := f.BootstrapClient("test")
	if err != nil {
		t.Fatalf("there is nothing to ask with: %v", err)
	}
	if _, err := bootstrap.CoreV1().RESTClient().Get().AbsPath("/x").DoRaw(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Store.Write(made(t, "joined", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	f.Look()
	if got := ask(t, client(t, f), "https://whatever/x"); got != "joined" {
		t.Errorf("asked as %q", got)
	}
	if got := ask(t, client(t, Follow(s, logr.Discard())), "https://whatever/x"); got != "joined" {
		t.Errorf("a process that starts later asks as %q", got)
	}
	// A token is of no use to who has joined.
	if _, err := f.BootstrapClient("test"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), s.Bootstrap) || !strings.Contains(err.Error(), "kubeadm reset, then kubeadm join") {
		t.Errorf("%v", err)
	}
}

func TestABootstrapKubeconfigThatCannotBeUsedIsToldWithWhatToDo(t *testing.T) {
	a := serve(t)
	s := joining(t)
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	f := Follow(s, logr.Discard())
	if err := os.WriteFile(s.Bootstrap, []byte("a: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.BootstrapClient("test"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), s.Bootstrap+" cannot be used") || !strings.Contains(err.Error(), "correct it") {
		t.Errorf("a broken one: %v", err)
	}
	if _, err := Follow(joining(t), logr.Discard()).BootstrapClient("test"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

func TestAnotherBootstrapKubeconfigIsToldOnce(t *testing.T) {
	a := serve(t)
	s := joining(t)
	told := 0
	f := Follow(s, logr.Discard())
	f.OnBootstrap(func() { told++ })
	for n, change := range []func(){
		func() { a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.first"}) },
		func() { a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.second"}) },
		func() {
			if err := os.Remove(s.Bootstrap); err != nil {
				t.Fatal(err)
			}
			f.Look() // nothing new
			a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.third"})
		},
		func() { // the same join, once more
			if err := os.Remove(s.Bootstrap); err != nil {
				t.Fatal(err)
			}
			f.Look()
			a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.third"})
		},
	} {
		change()
		f.Look()
		if f.Look(); told != n+1 {
			t.Errorf("change %d: told %d times", n+1, told)
		}
	}
}
