package podsync

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
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
	deps := Deps{
		Epoch: 1, Runtime: conn, Images: conn, Mounter: mount.NewFake(),
		Notifier: quiet{}, LogNotifier: quiet{}, HostsGuard: smallfiles.Off{}, HostIPs: func() []string { return []string{"192.0.2.1"} },
	}
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
