package source

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// byHandRemovals is byHand, and tells of removed files too.
type byHandRemovals struct {
	byHand
	gone chan string
}

func (b byHandRemovals) NotifyRemoved(ctx context.Context, path string, changed func(), removed func(string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case file := <-b.gone:
			removed(file)
			changed()
		case <-b.poke:
			changed()
		}
	}
}

func TestAFileThatIsRemovedAndPutBackAtOnceIsAPodThatBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan string)
		b := startFilesWith(t, func(poke chan struct{}) Notifier { return byHandRemovals{byHand{poke}, gone} }, nil)
		b.write("a.yaml", podText("a", ""))
		b.write("b.yaml", podText("b", ""))
		b.log = nil
		gone <- filepath.Join(b.dir, "a.yaml") // it is there again when anybody looks
		time.Sleep(settle)
		synctest.Wait()
		b.want("a-node", "b-node")
		if !slices.Equal(b.log, []string{"remove a-node", "set a-node"}) {
			t.Errorf("the sink was told %q", b.log)
		}
		b.log = nil
		gone <- filepath.Join(b.dir, "never.yaml")
		b.changed()
		if len(b.log) > 0 {
			t.Errorf("of a file that held no pod the sink was told %q", b.log)
		}
		gone <- filepath.Join(b.dir, "a.yaml")
		b.remove("a.yaml")
		b.want("b-node")
	})
}

// An editor moves the old file away and writes a new one, and a copy lies beside it:
// before or after it in the order of names.
func TestAFileThatIsWrittenAnewKeepsItsNameBesideACopy(t *testing.T) {
	for _, copied := range []string{"pod-backup.yaml", "pod.yaml.bak"} {
		t.Run(copied, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan string)
				b := startFilesWith(t, func(poke chan struct{}) Notifier { return byHandRemovals{byHand{poke}, gone} }, nil)
				b.write("pod.yaml", podText("a", ""))
				b.write(copied, podText("a", ""))
				b.log = nil
				path := filepath.Join(b.dir, "pod.yaml")
				if err := os.WriteFile(path, []byte(podText("a", "  hostNetwork: true\n")), 0o600); err != nil {
					t.Fatal(err)
				}
				gone <- path
				time.Sleep(settle)
				synctest.Wait()
				b.want("a-node")
				for _, pod := range b.pods {
					if !pod.Spec.HostNetwork || !slices.Equal(b.log, []string{"remove a-node", "set a-node"}) {
						t.Errorf("the sink was told %q, and has %+v", b.log, pod.Spec)
					}
				}
				gone <- path
				b.remove("pod.yaml")
				b.want("a-node")
			})
		})
	}
}

// An editor saves a file by moving the old one away and writing a new one: a slip of
// the pen stops a pod no more than when it is written in place.
func TestAFileThatIsPutBackBrokenStopsNoPod(t *testing.T) {
	const broken = "broken: ["
	for name, tc := range map[string]struct {
		before, saved string
		told          []string
	}{
		"it was good":                          {podText("a", ""), broken, []string{"set a-node"}},
		"it was never read, and still is not":  {broken, broken + "[", []string{"doubt file true"}},
		"it was never read, and is corrected":  {broken, podText("a", ""), []string{"doubt file true", "set a-node", "doubt file false"}},
		"it was good, and is, and begins anew": {podText("a", ""), podText("a", ""), []string{"set a-node", "remove a-node", "set a-node"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan string)
				b := startFilesWith(t, func(poke chan struct{}) Notifier { return byHandRemovals{byHand{poke}, gone} }, nil)
				b.write("a.yaml", tc.before)
				if err := os.WriteFile(filepath.Join(b.dir, "a.yaml"), []byte(tc.saved), 0o600); err != nil {
					t.Fatal(err)
				}
				gone <- filepath.Join(b.dir, "a.yaml")
				time.Sleep(settle)
				synctest.Wait()
				if !slices.Equal(b.all, tc.told) {
					t.Errorf("the sink was told %q, want %q", b.all, tc.told)
				}
			})
		})
	}
}

func TestAFileThatIsStillBeingWrittenWhenItIsPutBackIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan string)
		b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{})}
		s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir}, Deps{Notifier: byHandRemovals{byHand{b.poke}, gone}, Events: noter{b.recorder}})
		if err != nil {
			t.Fatal(err)
		}
		var writing atomic.Bool
		s.readBounded = func(path string, limit int64) ([]byte, error) {
			if writing.Load() && filepath.Base(path) == "a.yaml" {
				return nil, errWriting
			}
			return readBounded(path, limit)
		}
		b.run(s)
		b.write("a.yaml", podText("a", ""))
		b.log = nil
		writing.Store(true)
		gone <- filepath.Join(b.dir, "a.yaml")
		time.Sleep(time.Second)
		synctest.Wait()
		if len(b.log) > 0 {
			t.Errorf("while it is written the sink was told %q", b.log)
		}
		writing.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"remove a-node", "set a-node"}; !slices.Equal(b.log, want) {
			t.Errorf("the sink was told %q, want %q", b.log, want)
		}
	})
}

// What cannot be read yet stays in doubt when another file goes meanwhile.
func TestAFileThatGoesEndsNoDoubtAboutOneThatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan string)
		b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{}), quiet: true}
		b.write("a.yaml", podText("a", ""))
		b.write("b.yaml", podText("b", ""))
		s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir}, Deps{Notifier: byHandRemovals{byHand{b.poke}, gone}, Events: noter{b.recorder}})
		if err != nil {
			t.Fatal(err)
		}
		s.readBounded = func(path string, limit int64) ([]byte, error) {
			if filepath.Base(path) == "a.yaml" {
				return nil, errWriting
			}
			return readBounded(path, limit)
		}
		b.run(s)
		time.Sleep(2 * writtenWithin)
		if err := os.Remove(filepath.Join(b.dir, "b.yaml")); err != nil {
			t.Fatal(err)
		}
		gone <- filepath.Join(b.dir, "b.yaml")
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"file true"}; !slices.Equal(b.doubts, want) || len(b.pods) > 0 {
			t.Errorf("doubts %q, want %q; pods %v", b.doubts, want, b.names())
		}
	})
}

func TestInotifyTellsAFileThatWentFromOneThatWasReplaced(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"removed.yaml", "moved.yaml", "replaced.yaml", "written.yaml"} {
		if err := os.WriteFile(at(name), []byte("a"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var removed []string
	began, seen := make(chan struct{}, 1), make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- Inotify{}.NotifyRemoved(ctx, dir, func() {
			select {
			case began <- struct{}{}:
			default:
			}
		}, func(file string) {
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, filepath.Base(file))
			if filepath.Base(file) == "last.yaml" {
				seen <- struct{}{}
			}
		})
	}()
	<-began
	for _, step := range []func() error{
		func() error { return os.Remove(at("removed.yaml")) },
		func() error { return os.WriteFile(at("removed.yaml"), []byte("a"), 0o600) },
		func() error { return os.Rename(at("moved.yaml"), filepath.Join(t.TempDir(), "x")) },
		func() error { return os.WriteFile(at(".new"), []byte("a"), 0o600) },
		func() error { return os.Rename(at(".new"), at("replaced.yaml")) },
		func() error { return os.WriteFile(at("written.yaml"), []byte("b"), 0o600) },
		func() error { return os.WriteFile(at("last.yaml"), nil, 0o600) },
		func() error { return os.Remove(at("last.yaml")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-seen:
	case <-time.After(30 * time.Second):
		t.Fatal("not told of the last file")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if want := []string{"removed.yaml", "moved.yaml", "last.yaml"}; !slices.Equal(removed, want) {
		t.Errorf("told of %q, want %q", removed, want)
	}
}
