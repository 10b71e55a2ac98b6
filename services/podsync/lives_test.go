package podsync

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// lives are those of one process after the other, on one runtime, with the manifest
// of one static pod. It is for a bubble.
type lives struct {
	*testing.T
	dir string
	rt  *fakecri.Runtime
}

func newLives(t *testing.T) *lives {
	t.Helper()
	l := &lives{T: t, dir: t.TempDir()}
	for _, d := range []string{"manifests", "root"} {
		if err := os.MkdirAll(filepath.Join(l.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.rt = fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}, Scripts: map[string]fakecri.Script{
		"registry.local/hello:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 5 * time.Second}},
	}})
	return l
}

// newClusterLives are lives without static pods, of one image on an apiserver that has
// the node n1 with an address. with gives each life the apiserver.
func newClusterLives(t *testing.T, app fakecri.Script, faults func(fakeapiserver.Request) fakeapiserver.Fault) (l *lives, api *fakeapiserver.Server, with func(*Config, *Deps)) {
	t.Helper()
	rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": app}})
	api = fakeapiserver.New(fakeapiserver.Config{Faults: faults})
	t.Cleanup(func() {
		api.Close()
		rt.Close()
	})
	if _, err := api.Admin().CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &lives{T: t, dir: t.TempDir(), rt: rt}, api, func(c *Config, d *Deps) { c.StaticPods.Path, d.Client = "", api.Client() }
}

// create makes the pod default/p of this one container, from app:1.
func (l *lives) create(api *fakeapiserver.Server, spec v1.PodSpec, container v1.Container) {
	l.Helper()
	container.Name, container.Image, container.ImagePullPolicy = "c", "app:1", v1.PullIfNotPresent
	spec.NodeName, spec.Containers = "n1", []v1.Container{container}
	if _, err := api.Admin().CoreV1().Pods("default").Create(l.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: spec}, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
}

// write makes this text the manifest.
func (l *lives) write(text string) {
	l.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, "manifests", "hello.yaml"), []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
}

// live lets a process live for as long as work lasts. with changes what it is given.
func (l *lives) live(with func(*Config, *Deps), work func(s *Service)) {
	l.Helper()
	conn, err := l.rt.Dial(l.Context(), cri.DialOptions()...)
	if err != nil {
		l.Fatal(err)
	}
	cfg := bare(l.dir)
	cfg.StaticPods.Path = filepath.Join(l.dir, "manifests")
	deps := faked(conn)
	with(&cfg, &deps)
	s, err := New(cfg, deps)
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	work(s)
	cancel()
	if err := <-done; err != nil {
		l.Error(err)
	}
	_ = conn.Close()
}
