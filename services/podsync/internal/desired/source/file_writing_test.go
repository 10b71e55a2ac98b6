package source

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What runs of a pod that no source has is ended as soon as all are ready.
func TestAFileThatIsBeingWrittenAtTheStartIsWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		writes time.Duration
		ready  time.Duration
		log    []string
	}{
		"it is written soon": {time.Second, time.Second, []string{"set a-node", "ready file"}},
		"it has no end":      {time.Hour, writtenWithin, []string{"ready file"}},
		"nobody is at it":    {0, 0, []string{"set a-node", "ready file"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{})}
				if err := os.WriteFile(filepath.Join(b.dir, "a.yaml"), []byte(podText("a", "")), 0o600); err != nil {
					t.Fatal(err)
				}
				s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir}, Deps{Notifier: byHand{b.poke}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				s.readBounded = func(path string, limit int64) ([]byte, error) {
					if time.Since(began) < tc.writes {
						return nil, errWriting
					}
					return readBounded(path, limit)
				}
				b.run(s)
				time.Sleep(tc.ready)
				synctest.Wait()
				b.do(func() {
					if !slices.Equal(b.log, tc.log) {
						t.Errorf("after %v the sink was told %q, want %q", tc.ready, b.log, tc.log)
					}
				})
			})
		})
	}
}

// A file that never is at rest is neither read nor broken, and yet it is why a pod is
// in doubt.
func TestAFileThatIsWrittenForeverIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{}), quiet: true}
		b.write("a.log", "one line, and another")
		s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir}, Deps{Notifier: byHand{b.poke}, Health: reporter{b.recorder}})
		if err != nil {
			t.Fatal(err)
		}
		var writing atomic.Bool
		writing.Store(true)
		s.readBounded = func(path string, limit int64) ([]byte, error) {
			if writing.Load() {
				return nil, errWriting
			}
			return readBounded(path, limit)
		}
		said := func(after time.Duration) (got string) {
			time.Sleep(after)
			synctest.Wait()
			b.do(func() { got = b.health["static pods"] })
			return got
		}
		b.run(s)
		if got := said(writtenWithin - time.Second); got != "" {
			t.Errorf("after a moment it is said %q", got)
		}
		if got := said(2 * time.Second); !strings.Contains(got, "a.log") || !strings.Contains(got, "it is being written") {
			t.Errorf("it is said %q", got)
		}
		if err := os.WriteFile(filepath.Join(b.dir, "a.log"), []byte(podText("a", "")), 0o600); err != nil {
			t.Fatal(err)
		}
		writing.Store(false)
		if got := said(time.Second); got != "" {
			t.Errorf("afterwards it is said %q", got)
		}
		b.want("a-node")
	})
}
