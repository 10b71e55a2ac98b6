package evict

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// allocatable is a world whose pods may take no more than so much memory together.
type allocatable struct {
	*world
	limit uint64
}

// withAllocatable runs a test in a world whose pods may take 800Mi of memory together, of which
// 100Mi have to be left, as of the node's.
func withAllocatable(t *testing.T, test func(a allocatable)) {
	settings := hardMemory()
	settings.PodsEnforced = true
	in(t, settings, Config{}, func(w *world) {
		a := allocatable{w, 800 * mi}
		w.loop.deps.Stats = a
		test(a)
	})
}

func (a allocatable) Summary(ctx context.Context, d Detail) (*statsapi.Summary, error) {
	s, err := a.world.Summary(ctx, d)
	if s != nil {
		used := a.used()
		left := a.limit - min(a.limit, used)
		s.Node.SystemContainers = append(s.Node.SystemContainers, statsapi.ContainerStats{
			Name: statsapi.SystemContainerPods, Memory: &statsapi.MemoryStats{Time: metav1.Now(), AvailableBytes: &left, WorkingSetBytes: &used},
		})
	}
	return s, err
}

func (a allocatable) used() (sum uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.memory {
		sum += n
	}
	return sum
}

// passes has time pass, in which nobody takes more, and both signals told each half second.
func (a allocatable) passes(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		used := a.used()
		a.set(func() {
			memory, _ := a.leftLocked()
			now := time.Now()
			a.frame = pressure.Frame{Heard: now, Signals: []pressure.Signal{
				{Name: threshold.Memory, Available: memory, Capacity: capacity, Time: now},
				{Name: threshold.AllocatableMemory, Available: a.limit - min(a.limit, used), Capacity: max(a.limit, used), Time: now},
			}}
		})
		a.moved.Set()
		synctest.Wait()
	}
}

func TestThatLessIsLeftOfWhatPodsMayUseThanOfTheNodeIsNoReasonForASecondPod(t *testing.T) {
	withAllocatable(t, func(a allocatable) {
		a.pod("first", 430*mi, 0)
		a.pod("second", 330*mi, 0)
		a.set(func() {
			a.otherMemory = 180 * mi // 60Mi are left of the node, and 40Mi for pods.
			a.takes["first"], a.takes["second"] = 10*time.Second, 10*time.Second
		})
		a.passes(6 * time.Second)
		a.wantStops("when as much is left as when the first was chosen", "first")
	})
}

// The first frees a little, which is not enough.
func TestWhoIsChosenByAnotherSignalOfMemoryThanTheFirstIsWaitedForToo(t *testing.T) {
	withAllocatable(t, func(a allocatable) {
		a.pod("third", 250*mi, 0)
		a.pod("second", 500*mi, 0)
		a.pod("first", 4*mi, 0, priority(-1))
		a.set(func() {
			a.otherMemory = 160 * mi
			a.takes["first"], a.takes["second"], a.takes["third"] = time.Second, 5*time.Second, 5*time.Second
		})
		a.passes(6 * time.Second)
		a.wantStops("the second has far more than is short", "first", "second")
	})
}

// stoppedBefore has the first of two pods be ended since three seconds before this process was
// started, when so much was left.
func (a allocatable) stoppedBefore(other uint64, signal, left string) {
	a.pod("first", 430*mi, 0)
	a.pod("second", 330*mi, 0)
	a.set(func() {
		a.otherMemory = other
		a.endings = map[types.UID]Ending{"first": {
			Reason: "Evicted", Since: time.Now().Add(-3 * time.Second), Grace: time.Second, Signal: signal,
			Message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: " + left + ". ",
		}}
		a.takes["first"] = time.Hour
	})
}

// As much was left of what pods may use as now, and of the node there is less by now: podsync
// says which of them it was.
func TestAStopOfARunBeforeIsMeasuredByTheSignalThatItWasChosenBy(t *testing.T) {
	for signal, want := range map[string][]string{threshold.AllocatableMemory: nil, threshold.Memory: {"second"}} {
		withAllocatable(t, func(a allocatable) {
			a.stoppedBefore(230*mi, signal, "40Mi")
			a.passes(6 * time.Second)
			a.wantStops("it was chosen by "+signal, want...)
		})
	}
}

// 60Mi were left of the node.
func TestAStopOfARunBeforeIsNotMeasuredByAnotherSignalOfMemory(t *testing.T) {
	withAllocatable(t, func(a allocatable) {
		a.stoppedBefore(180*mi, "", "60Mi")
		a.passes(3 * time.Second)
		a.wantStops("after the start")
	})
}

func TestAPodThatHasEndedWhilePodsyncDoesNotAnswerIsNotLookedAtWithoutEnd(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 950*mi, 0)
		w.set(func() {
			w.hangs = map[string]time.Duration{"hog": time.Hour}
			w.takes["hog"] = time.Hour
		})
		w.signals()
		w.wantStops("at first", "hog")
		time.Sleep(500 * time.Millisecond)
		w.end("hog")
		w.signals()
		before := w.judged.times.Load()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := w.judged.times.Load() - before; n > 100 {
			t.Errorf("%d judgements in 20 s in which nothing happened", n)
		}
	})
}
