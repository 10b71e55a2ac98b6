package evict

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestWhoHoldsARemovedFileOpenGoesAndTheFileIsNamed(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("seen", 1, 300*mi)
		w.pod("unseen", 1, 0)
		w.set(func() { w.unlinked["unseen"] = 620 * mi })
		w.pass(10 * time.Second)
		w.wantStops("what no directory shows is known", "unseen")
		if d := w.last(); !strings.HasSuffix(d.Why, `; container c holds 620Mi open in files that were removed`) || d.Held.Largest != "/scratch/unseen" {
			t.Errorf("%s", d.Why)
		}
	})
}

func TestAPodsyncThatWasJustStartedIsGivenTimeToHearOfItsPods(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("known", 450*mi, 0)
		w.pod("hog", 500*mi, 0)
		all := w.pods
		w.set(func() { w.partial, w.pods = true, all[:1] })
		w.pass(5 * time.Second)
		w.wantStops("while it may have others")
		if d := w.last(); d.Outcome != Held {
			t.Errorf("%+v", d)
		}
		w.set(func() { w.partial, w.pods = false, all })
		w.pass(2 * time.Second)
		w.wantStops("when it knows all", "hog")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 950*mi, 0)
		w.set(func() { w.partial = true })
		w.pass(gathering + 2*time.Second)
		w.wantStops("when its sources stay away", "hog")
	})
}

func TestThatAPodHasEndedIsHeardAtOnce(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("first", 500*mi, 0)
		w.pod("second", 450*mi, 0)
		w.set(func() { w.takes["first"], w.otherMemory = time.Hour, 500*mi })
		w.signals()
		w.wantStops("at first", "first")
		time.Sleep(300 * time.Millisecond)
		w.set(func() {
			w.memory["first"] = 0
			w.pods[0] = w.pods[0].DeepCopy()
			w.pods[0].Status.Phase = v1.PodFailed
		})
		w.signals() // It is still short of memory.
		w.wantStops("when it has ended", "first", "second")
	})
}

func TestWhatAnotherSignalNeedsIsReclaimedToo(t *testing.T) {
	w := newWorld(t, hardDisk(), Config{})
	apart := threshold.Layout{ImagesApart: true, ContainersApart: true}
	wants := func(signal string) bool {
		return w.loop.reclaimed(t.Context(), pressure.Met{Threshold: threshold.Threshold{Signal: signal}}, apart)
	}
	for _, signal := range []string{"imagefs.available", "nodefs.available"} {
		if wants(signal) {
			t.Errorf("%s: all is freed before anything was tried", signal)
		}
		<-w.loop.reclaim.done
		if wants(signal) {
			t.Errorf("%s: the runtime has no time to free it", signal)
		}
		w.loop.reclaim.at = time.Now().Add(-freeing)
		if !wants(signal) {
			t.Errorf("%s: it is tried again and again", signal)
		}
	}
	if want := []eviction.Reclaim{{Images: true}, {Containers: true}}; !slices.Equal(w.asked, want) {
		t.Errorf("%+v", w.asked)
	}
}

func TestWhatLiesOnADiskIsMeasuredAnewBeforeAPodGoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("small", 1, 5*mi)
		w.pod("hog", 1, 920*mi)
		w.walked = map[string]uint64{"hog": 0}
		w.pass(5 * time.Second)
		w.wantStops("what was measured before it wrote", "hog")
	})
}

func TestTheRuntimeIsGivenTimeToWeighLayers(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 920*mi)
		w.layersAt = map[string]time.Time{"hog": time.Now().Add(-5 * time.Second)}
		w.pass(8 * time.Second)
		w.wantStops("while its figures are from before the shortage")
		if d := w.last(); d.Outcome != Held || !strings.Contains(d.Why, "was not all measured since") {
			t.Errorf("%+v", d)
		}
		w.set(func() { w.layersAt["hog"] = time.Now() })
		w.pass(2 * time.Second)
		w.wantStops("when they are new", "hog")
	})
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 920*mi)
		w.layersAt = map[string]time.Time{"hog": time.Now().Add(-5 * time.Second)}
		w.pass(layersAge + 2*time.Second)
		w.wantStops("when they stay old", "hog")
	})
}

func TestWhatAPodLeavesIsReclaimedBeforeAnotherPodGoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("small", 1, 5*mi)
		w.otherDisk = 420 * mi
		w.takes["hog"] = time.Second
		w.pass(4 * time.Second)
		w.wantStops("at first", "hog")
		w.set(func() { w.otherDisk = 920 * mi }) // The runtime keeps the layer of what has ended.
		w.reclaims = func() {
			time.AfterFunc(time.Second, func() { w.set(func() { w.otherDisk = 420 * mi }) })
		}
		w.pass(30 * time.Second)
		w.wantStops("when it is freed", "hog")
	})
}

func TestAShortageThatIsOverWhenDisksAreMeasuredEndsNobody(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.otherDisk = 420 * mi
		w.set(func() { w.walks = func() { w.set(func() { w.otherDisk = 100 * mi }) } })
		w.pass(20 * time.Second)
		w.wantStops("somebody else has made room meanwhile")
		if d := w.last(); d.Outcome != Enough {
			t.Errorf("%+v", d)
		}
	})
}

// Else a stats that hangs takes the time of all who wait, one after the other.
func TestStatsIsAskedOnceForAllWhoseEndIsNotHeard(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			w.pod(name, 1, 20*mi, capped)
			w.set(func() { w.takes[name] = time.Hour })
		}
		time.Sleep(time.Second)
		w.set(func() {
			for _, name := range names {
				w.disk[name] = 200 * mi
			}
		})
		time.Sleep(interval + least)
		synctest.Wait()
		w.set(func() {
			slices.SortFunc(w.stops, func(a, b Stop) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
		})
		w.wantStops("at first", names...)
		w.set(func() { w.summaries = nil })
		time.Sleep(3*soon + 500*time.Millisecond)
		synctest.Wait()
		w.set(func() {
			if n := len(w.summaries); n < 2 || n > 4 {
				t.Errorf("asked %d times in %s", n, 3*soon)
			}
		})
	})
}

func TestOpenFilesThatWereNotLookedAtAreWaitedForAndThenTold(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("seen", 1, 920*mi)
		w.set(func() { w.some = true })
		w.pass(10 * time.Second)
		w.wantStops("while stats has no time for all")
		if d := w.last(); d.Outcome != Held || !strings.Contains(d.Why, "no time to look at all open files") {
			t.Errorf("%+v", d)
		}
		w.pass(5 * time.Second)
		w.wantStops("when it never has", "seen")
		if d := w.last(); !strings.HasSuffix(d.Why, "another may hold more in files that were removed") {
			t.Errorf("%s", d.Why)
		}
	})
}
