package kubeclient

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

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
