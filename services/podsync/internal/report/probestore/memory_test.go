package probestore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// wrong returns what the tracker has heard that is not well.
func wrong(h *health.Tracker) (messages []string) {
	for _, d := range h.Dependencies() {
		if !d.Ready {
			messages = append(messages, d.Message)
		}
	}
	return messages
}

func staticPod() *v1.Pod {
	pod := probedPod()
	pod.Annotations = map[string]string{podutil.AnnotationSource: "file"}
	return pod
}

// life is one life of a process: a Board on the file that saw one result.
func life(t *testing.T, file string, told *health.Tracker, pod *v1.Pod) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(Deps{Memory: file, Health: told})
		b.Load(logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		b.Set(pod, targets("1"))
		b.Report([]Result{{Key: Key{"u", ready}, Known: true, ProbeResult: podstate.ProbeResult{ContainerID: "1", Success: true}}}, nil)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestResultsOfStaticPodsOutliveTheProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "polylet", "probe-results.json")
	life(t, file, health.NewTracker(logr.Discard()), staticPod())
	b := NewBoard(Deps{Memory: file})
	b.Load(logr.Discard())
	if r := b.Results("u")[ready]; !r.Success || r.ContainerID != "1" {
		t.Fatalf("before the pod has targets: %+v", r)
	}
	b.Set(staticPod(), targets("1"))
	if r, ok := b.Result(Key{"u", ready}); !ok || !r.Success {
		t.Fatalf("with targets: %+v", r)
	}
	b.Set(staticPod(), targets("2"))
	if r := b.Results("u"); len(r) != 0 {
		t.Fatalf("another container inherits %+v", r)
	}
}

func TestResultsOfTheApiserversPodsAreNotKeptTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probe-results.json")
	life(t, file, health.NewTracker(logr.Discard()), probedPod())
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Fatalf("the file is there: %v", err)
	}
}

// A container that ends well when it is asked to may do so while nobody is there.
func TestThatAProbeHasKilledAContainerOutlivesTheProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probe-results.json")
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(Deps{Memory: file})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		b.Set(probedPod(), targets("1"))
		failed := podstate.ProbeResult{ContainerID: "1"}
		b.Report([]Result{{Key: Key{"u", ready}, Known: true, ProbeResult: failed}, {Key: Key{"u", live}, Known: true, ProbeResult: failed}}, nil)
		b.Set(probedPod(), nil) // it has ended, and nobody could be told yet
		other := probedPod()
		other.UID = "other"
		b.Set(other, targets("9"))
		b.Report([]Result{{Key: Key{"other", live}, Known: true, ProbeResult: podstate.ProbeResult{ContainerID: "9"}}}, nil)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	b := NewBoard(Deps{Memory: file})
	b.Load(logr.Discard())
	if r := b.Results("u"); len(r) != 1 || r[live].ContainerID != "1" || r[live].Success {
		t.Fatalf("before the pod has targets: %+v", r)
	}
	b.Set(probedPod(), nil)
	if r := b.Results("u"); r[live].ContainerID != "1" {
		t.Fatalf("while it has none: %+v", r)
	}
	b.Set(probedPod(), targets("2"))
	if r := b.Results("u"); len(r) != 0 || len(b.snapshot()["u"]) != 0 {
		t.Fatalf("another container inherits %+v", r)
	}
	b.Remove("other")
	if m := b.snapshot(); len(m) != 0 {
		t.Fatalf("kept of pods that are gone: %v", m)
	}
}

func TestADamagedMemoryIsSetAsideAndNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probe-results.json")
	life(t, file, health.NewTracker(logr.Discard()), staticPod())
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "true", "null", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	told := health.NewTracker(logr.Discard())
	b := NewBoard(Deps{Memory: file, Health: told})
	b.Load(logr.Discard())
	if len(b.Results("u")) != 0 || !strings.Contains(strings.Join(wrong(told), " "), file) {
		t.Fatalf("results %v, reported %q", b.Results("u"), wrong(told))
	}
	aside, err := filepath.Glob(file + ".damaged-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
	life(t, file, told, staticPod())
	if len(wrong(told)) != 0 {
		t.Fatalf("still reported after a new one was written: %v", wrong(told))
	}
}

func TestWhatIsGoneIsNotKeptForEver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probe-results.json")
	life(t, file, health.NewTracker(logr.Discard()), staticPod())
	b := NewBoard(Deps{Memory: file})
	b.Load(logr.Discard())
	b.Remove("u")
	if m := b.snapshot(); len(m) != 0 {
		t.Fatalf("kept %v", m)
	}
}

func TestWhatCannotBeWrittenIsTriedAgainUntilItCan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in the way", "probe-results.json")
	if err := os.WriteFile(filepath.Dir(file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		told := health.NewTracker(logr.Discard())
		b := NewBoard(Deps{Memory: file, Health: told})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		b.Set(staticPod(), targets("1"))
		b.Report([]Result{{Key: Key{"u", ready}, Known: true, ProbeResult: podstate.ProbeResult{ContainerID: "1", Success: true}}}, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(strings.Join(wrong(told), " "), filepath.Dir(file)) {
			t.Errorf("reported %v", wrong(told))
		}
		if err := os.Remove(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // nothing changes meanwhile
		synctest.Wait()
		next := NewBoard(Deps{Memory: file})
		next.Load(logr.Discard())
		if len(wrong(told)) != 0 || !next.Results("u")[ready].Success {
			t.Errorf("reported %v, kept %v", wrong(told), next.Results("u"))
		}
		cancel()
		<-done
	})
}

func TestResultsOfPodsThatNeverComeBackAreForgotten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "polylet", "probe-results.json")
	life(t, file, health.NewTracker(logr.Discard()), staticPod())
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(Deps{Memory: file})
		b.Load(logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		b.Prune(func(types.UID) bool { return true })
		if len(b.Results("u")) == 0 {
			t.Error("the results of a pod that goes on are gone")
		}
		b.Prune(func(types.UID) bool { return false })
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || len(b.Results("u")) > 0 {
			t.Errorf("%v; left %v", err, b.Results("u"))
		}
	})
	next := NewBoard(Deps{Memory: file})
	next.Load(logr.Discard())
	if left := next.Results("u"); len(left) > 0 {
		t.Errorf("on the disk are left %v", left)
	}
}
