package evict

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/threshold"
)

func hardMemory() threshold.Settings {
	return threshold.Settings{Hard: map[string]string{"memory.available": "100Mi"}}
}

func TestOnePodGoesAndIsWaitedForAndThatIsEnough(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("within", 300*mi, 0, asks("400Mi"))
		w.pod("small", 100*mi, 0)
		w.pod("hog", 450*mi, 0)
		w.takes["hog"] = 5 * time.Second
		w.signals()
		w.wantStops("while all is well")
		w.set(func() { w.memory["hog"] = 550 * mi })
		w.signals()
		w.wantStops("at the first frame", "hog")
		w.pass(4 * time.Second)
		w.wantStops("while it ends", "hog")
		w.pass(time.Minute)
		w.wantStops("after it has ended", "hog")
		stop := w.stops[0]
		const message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 550Mi, request is 0, has larger consumption of memory. "
		if stop.Message != message || stop.Grace != time.Second || !stop.Disruption || stop.Annotations["starved_resource"] != "memory" {
			t.Errorf("%+v", stop)
		}
		d := w.last()
		if d.Outcome != Evicted || d.Chosen.Name != "hog" || len(d.Candidates) != 3 || d.Candidates[1].Name != "small" || d.Shortage.Available != "50Mi" || d.Reclaimed != nil {
			t.Errorf("%+v", d)
		}
		if w.metric("kubelet_evictions", "memory.available") != 1 || w.metric("kubelet_eviction_stats_age_seconds", "memory.available") != 1 {
			t.Error("it is not counted once")
		}
		if want := []string{"Warning EvictionThresholdMet: Attempting to reclaim memory"}; !slices.Equal(w.events, want) {
			t.Errorf("%v", w.events)
		}
	})
}

func TestASecondPodGoesAtOnceWhenTheFirstHasHadItsTimeAndStillLessIsLeft(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("stuck", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.takes["stuck"] = time.Hour
		w.signals()
		w.wantStops("at first", "stuck")
		w.pass(20 * time.Second)
		w.wantStops("while nothing changes", "stuck")
		w.set(func() { w.otherMemory = 10 * mi })
		w.signals()
		w.wantStops("when less is left", "stuck", "second")
	})
}

func TestAPodThatDoesNotEndIsWaitedForNoLongerThanItsTimeAllows(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("stuck", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.takes["stuck"] = time.Hour
		w.pass(30 * time.Second)
		w.wantStops("before its time is over", "stuck")
		w.pass(3 * time.Second)
		w.wantStops("after it", "stuck", "second")
	})
}

func TestASoftThresholdGivesThePodItsTimeAfterTheGracePeriod(t *testing.T) {
	soft := threshold.Settings{Soft: map[string]string{"memory.available": "10%"}, SoftGrace: map[string]string{"memory.available": "1m"}}
	in(t, soft, Config{LongestGrace: 20 * time.Second}, func(w *world) {
		w.pod("hog", 950*mi, 0)
		w.pass(59 * time.Second)
		w.wantStops("in the grace period")
		w.pass(2 * time.Second)
		w.wantStops("after it", "hog")
		if grace := w.stops[0].Grace; grace != 20*time.Second {
			t.Errorf("it has %s", grace)
		}
	})
}

func TestNothingIsDoneByFiguresThatAreOldOrThatASecondLookDoesNotFind(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 950*mi, 0)
		for _, old := range []time.Duration{time.Minute, -time.Minute} {
			w.signalsAt(old)
			time.Sleep(5 * time.Second)
			w.wantStops(fmt.Sprintf("by figures %s old", old))
			if d := w.last(); d.Outcome != Held || d.Count < 2 {
				t.Errorf("%+v", d)
			}
		}
		w.set(func() { w.statsErr = errors.New("away") })
		w.signals()
		w.wantStops("without figures of the pods")
		w.set(func() { w.statsErr = nil; w.memory["hog"] = 10 * mi })
		time.Sleep(10 * time.Second)
		w.wantStops("when the shortage is over, though the newest frame does not know")
		if d := w.last(); d.Outcome != Held {
			t.Errorf("%+v", d)
		}
		w.set(func() { w.memory["hog"] = 950 * mi })
		w.pass(2 * time.Second)
		w.wantStops("when it is true", "hog")
	})
}

func TestAPodWithoutFiguresStays(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("unknown", 0, 0, priority(-5))
		w.pod("static", 500*mi, 0, func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} })
		w.set(func() { delete(w.memory, "unknown"); w.otherMemory = 450 * mi })
		w.pass(25 * time.Second)
		w.wantStops("nobody may go")
		if d := w.last(); d.Outcome != Nobody || len(d.Candidates) != 2 || d.Candidates[0].Not == "" || d.Count != 3 {
			t.Errorf("%+v", d)
		}
		w.pod("hog", 10*mi, 0)
		w.pass(10 * time.Second)
		w.wantStops("one that is known comes", "hog")
	})
}

func TestAStopThatIsUnderWayAfterARestartIsWaitedForAndNotCounted(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.alreadyStopped["hog"], w.takes["hog"] = true, 10*time.Second
		w.pass(time.Minute)
		w.wantStops("in a minute", "hog")
		if w.metric("kubelet_evictions", "memory.available") != 0 {
			t.Error("it is counted twice")
		}
	})
}

func TestAPodsyncThatWasJustStartedIsNotBelievedThatAPodHasEnded(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.takes["hog"] = 20 * time.Second
		w.signals()
		w.wantStops("at first", "hog")
		w.set(func() { w.forgetful = true })
		w.pass(2 * time.Second)
		w.set(func() { w.forgetful, w.memory["hog"], w.otherMemory = false, 200*mi, 300*mi })
		w.pass(12 * time.Second)
		w.wantStops("while it ends", "hog")
	})
}

func TestPodsThatPodsyncDoesNotStopAreLeftAlone(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("first", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.stopErr = fmt.Errorf("%w: no", rpcerr.ErrPrecondition)
		w.signals()
		w.wantStops("the next one goes at once", "first", "second")
		w.pass(9 * time.Second)
		w.wantStops("and nobody after them", "first", "second")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("gone", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.stopErr = rpcerr.ErrNotFound
		w.signals()
		w.set(func() { w.stopErr = nil })
		w.wantStops("one that has just ended", "gone")
		w.end("gone")
		w.pass(10 * time.Second)
		w.wantStops("what it used is free", "gone")
		w.pass(2 * lateness)
		if n := len(w.loop.skip); n != 0 {
			t.Errorf("%d pods that are gone are remembered", n)
		}
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 930*mi, 0)
		w.stopErr = rpcerr.ErrUnimplemented
		w.pass(50 * time.Second)
		w.wantStops("an older podsync is not asked again soon", "hog")
		if d := w.last(); d.Outcome != Refused {
			t.Errorf("%+v", d)
		}
		w.set(func() { w.stopErr = nil })
		w.pass(15 * time.Second)
		w.wantStops("but later", "hog", "hog")
	})
}

func TestAStopThatPodsyncDidNotConfirmIsAskedForAgainAndNobodyElseGoes(t *testing.T) {
	for _, class := range []error{rpcerr.ErrInternal, rpcerr.ErrTimeout, rpcerr.ErrUnavailable} {
		in(t, hardMemory(), Config{}, func(w *world) {
			w.pod("hog", 500*mi, 0)
			w.pod("second", 430*mi, 0)
			w.stopErr = fmt.Errorf("%w: the disk takes nothing", class)
			w.signals()
			w.wantStops("at first", "hog")
			// It ends all the same, and is not the one that uses most any more.
			w.set(func() { w.memory["hog"], w.otherMemory = 200*mi, 300*mi })
			w.pass(3500 * time.Millisecond)
			w.wantStops("while it is not confirmed", "hog", "hog", "hog", "hog")
			if d := w.last(); d.Outcome != Refused || d.Chosen.Name != "hog" {
				t.Errorf("%v: %+v", class, d)
			}
			w.set(func() { w.stopErr, w.takes["hog"], w.alreadyStopped["hog"] = nil, 5*time.Second, true })
			w.pass(4 * time.Second)
			w.wantStops("once it is", "hog", "hog", "hog", "hog", "hog")
			if d := w.last(); d.Outcome != Evicted || w.metric("kubelet_evictions", "memory.available") != 1 {
				t.Errorf("%v: %+v", class, d)
			}
			w.set(func() { w.otherMemory = 0 })
			w.pass(time.Minute)
			w.wantStops("and it has ended", "hog", "hog", "hog", "hog", "hog")
		})
	}
}

func TestAStopThatCanNeverBeTakenKeepsNobodyElse(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("first", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.stopErr = fmt.Errorf("%w: a message has 32768 bytes at most", rpcerr.ErrInvalid)
		w.signals()
		w.wantStops("the next one goes at once", "first", "second")
	})
}
