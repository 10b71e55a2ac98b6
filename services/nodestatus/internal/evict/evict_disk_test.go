package evict

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func hardDisk() threshold.Settings {
	return threshold.Settings{
		Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}, MinimumReclaim: map[string]string{"nodefs.available": "50Mi"},
	}
}

func TestWhatNobodyNeedsIsReclaimedBeforeAPodGoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.otherDisk = 420 * mi
		w.reclaims = func() { w.set(func() { w.otherDisk = 300 * mi }) }
		w.pass(10 * time.Second)
		w.wantStops("enough was reclaimed")
		if d := w.last(); d.Outcome != Enough || d.Reclaimed == nil || d.Reclaimed.Images != 2 {
			t.Errorf("%+v", d)
		}
	})
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 100*mi)
		w.otherDisk = 320 * mi
		// More than the threshold is left then, but not as much more as has to be.
		w.reclaims = func() { w.set(func() { w.otherDisk = 280 * mi }) }
		w.pass(10 * time.Second)
		w.wantStops("not enough was", "hog")
		if d := w.last(); d.Outcome != Evicted || d.Reclaimed == nil || d.Shortage.Signal != "nodefs.available" {
			t.Errorf("%+v", d)
		}
	})
}

// What a second look does not find has nothing to do with what was freed for another.
func TestAReclaimIsNotSaidToBeEnoughBySomethingElseThatIsNotShort(t *testing.T) {
	settings := hardDisk()
	settings.Hard["nodefs.inodesFree"] = "10%"
	in(t, settings, Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.otherDisk, w.inodesLeft = 420*mi, capacity/2
		for range 3 {
			w.pass(500 * time.Millisecond)
			w.set(func() {
				w.frame.Signals = append(slices.Clone(w.frame.Signals), pressure.Signal{Name: "nodefs.inodesFree", Available: 1, Capacity: capacity, Time: time.Now()})
			})
			w.moved.Set()
			synctest.Wait()
		}
		w.pass(5 * time.Second)
		w.wantStops("what was freed is not enough", "hog")
		for _, d := range w.loop.View().Decisions {
			if d.Outcome == Enough {
				t.Errorf("%+v", d)
			}
		}
	})
}

// A stats that was just started knows nothing yet of the runtime's disk.
func TestADiskOfWhichNothingIsKnownAfterAReclaimIsNotSaidToHaveEnough(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 950*mi)
		w.set(func() { w.barren = true; w.reclaims = func() { w.set(func() { w.blind = true }) } })
		w.pass(5 * time.Second)
		w.wantStops("nobody knows whether it is short")
		for _, d := range w.loop.View().Decisions {
			if d.Outcome == Enough {
				t.Errorf("%+v", d)
			}
		}
		w.set(func() { w.blind = false })
		w.pass(2 * time.Second)
		w.wantStops("it is known again", "hog")
		if n := len(w.asked); n != 2 { // and once for what the pod has left
			t.Errorf("reclaimed %d times", n)
		}
	})
}

func TestAReclaimThatFailsKeepsNoPodFromGoingAndIsTold(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.reclaimErr = errors.New("the runtime does not answer")
		w.pod("hog", 1, 950*mi)
		w.pass(10 * time.Second)
		w.wantStops("nothing was reclaimed", "hog")
		if d := w.last(); d.Outcome != Evicted || d.Reclaimed == nil || d.Reclaimed.Error != "the runtime does not answer" {
			t.Errorf("%+v", d)
		}
	})
}

func TestVolumesOfAPodThatHasEndedHaveTimeToGoBeforeAnotherPodHasTo(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 450*mi)
		w.takes["hog"] = time.Second
		w.pass(freeing + 500*time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() { w.otherDisk = 500 * mi }) // Its volumes are still there.
		w.pass(8 * time.Second)
		w.wantStops("while they go", "hog")
		w.set(func() { w.otherDisk = 0 })
		w.pass(20 * time.Second)
		w.wantStops("when they are gone", "hog")
	})
}

// It may take half a minute beyond its grace period to end, and its volumes have their time
// from then on.
func TestVolumesOfAPodThatWasSlowToEndHaveTheirTimeToGo(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Second, 28 * time.Second} {
		in(t, hardDisk(), Config{}, func(w *world) {
			w.pod("hog", 1, 500*mi)
			w.pod("other", 1, 450*mi)
			w.barren, w.takes["hog"] = true, takes
			w.pass(500 * time.Millisecond)
			w.wantStops("at first", "hog")
			w.set(func() { w.endings = ending("ephemeral-storage", 0) })
			w.pass(takes - time.Second)
			w.set(func() { w.otherDisk = 500 * mi }) // Its volumes are still there when it has ended.
			w.pass(8 * time.Second)
			w.wantStops(fmt.Sprintf("while they go, and it took %v", takes), "hog")
			w.set(func() { w.otherDisk, w.endings = 0, nil })
			w.pass(20 * time.Second)
			w.wantStops("when they are gone", "hog")
		})
	}
}

func TestMemoryIsLookedAfterWhileSomethingIsReclaimed(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("disk", 1, 950*mi)
		w.pod("memory", 100*mi, 0)
		w.reclaims = func() { time.Sleep(time.Minute) }
		w.pass(5 * time.Second)
		w.wantStops("while it is reclaimed")
		w.set(func() { w.memory["memory"] = 950 * mi })
		w.signals()
		w.wantStops("memory is short, too", "memory")
		w.pass(90 * time.Second)
		w.wantStops("after it", "memory", "disk")
	})
}

func TestAReclaimThatEndsWhileAPodIsWaitedForIsUsedLater(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("disk", 1, 950*mi)
		w.pod("memory", 100*mi, 0)
		w.takes["memory"] = time.Hour
		calls := 0
		w.reclaims = func() { calls++; time.Sleep(5 * time.Second) }
		w.pass(2 * time.Second)
		w.set(func() { w.memory["memory"] = 950 * mi })
		w.signals()
		w.wantStops("memory is short, too", "memory")
		w.pass(20 * time.Second)
		w.wantStops("the reclaim has ended", "memory")
		w.set(func() { w.otherMemory = 0; w.memory["memory"] = 1 })
		w.pass(20 * time.Second)
		w.wantStops("the pod was waited for", "memory", "disk")
		if calls != 2 { // The second is for what that pod leaves.
			t.Errorf("reclaimed %d times", calls)
		}
	})
}

func TestThatNobodyCanGoForDiskDelaysNothingAboutMemory(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.otherDisk = 950 * mi
		w.pass(freeing + time.Second)
		if d := w.last(); d.Outcome != Nobody {
			t.Errorf("%+v", d)
		}
		w.pod("hog", 950*mi, 0)
		w.signals()
		w.wantStops("at once", "hog")
	})
}

func TestAPodThatUsesMoreLocalStorageThanItMayIsStoppedWithinTenSeconds(t *testing.T) {
	limit := resource.MustParse("100Mi")
	limited := func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	}
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 50*mi, limited)
		w.pod("modest", 1, 50*mi, limited)
		time.Sleep(30 * time.Second)
		w.wantStops("within the limit")
		w.set(func() { w.disk["greedy"] = 101 * mi })
		time.Sleep(10 * time.Second)
		w.wantStops("beyond it", "greedy")
		stop := w.stops[0]
		if stop.Message != `Usage of EmptyDir volume "scratch" exceeds the limit "100Mi". ` || stop.Grace != time.Second || stop.Disruption || len(stop.Annotations) > 0 {
			t.Errorf("%+v", stop)
		}
		if d := w.last(); d.Outcome != Evicted || d.Shortage.Signal != "emptydirfs.limit" || d.Shortage.Available != "101Mi" || w.metric("kubelet_evictions", "emptydirfs.limit") != 1 {
			t.Errorf("%+v", d)
		}
		time.Sleep(time.Minute)
		w.wantStops("later", "greedy")
	})
	in(t, threshold.Settings{}, Config{}, func(w *world) {
		w.pod("greedy", 1, 500*mi, limited)
		time.Sleep(time.Minute)
		w.wantStops("localStorageCapacityIsolation is off")
	})
}

// Its volumes are what the disk is short of, whatever it was stopped for.
func TestVolumesOfAPodThatWentForMemoryHaveTimeToGoBeforeAnotherHasToForADisk(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 950*mi, 500*mi)
		w.pod("other", 1, 450*mi)
		w.barren = true
		w.takes["hog"] = time.Second
		w.pass(500 * time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() { // Its volumes are still there.
			w.endings, w.otherDisk = ending("memory", 0), 500*mi
		})
		w.pass(6 * time.Second)
		w.wantStops("while they go", "hog")
		w.set(func() { w.endings, w.otherDisk = map[types.UID]Ending{}, 0 })
		w.pass(20 * time.Second)
		w.wantStops("when they are gone", "hog")
	})
}

// The kubelet waits for those, too, whatever is left meanwhile.
func TestVolumesOfAPodHaveTimeToGoThoughADiskHasRoomForAMoment(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 450*mi)
		w.barren, w.takes["hog"] = true, time.Second
		w.pass(500 * time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() { w.endings, w.otherDisk = ending("ephemeral-storage", 0), 500*mi }) // Its volumes are still there.
		w.pass(1500 * time.Millisecond)
		w.set(func() { w.otherDisk = 300 * mi }) // What was reclaimed,
		w.pass(500 * time.Millisecond)
		w.set(func() { w.otherDisk = 500 * mi }) // and another has written meanwhile.
		w.goesAlone("hog")
	})
}

// goesAlone: nobody else goes while the volumes of a pod that was stopped do, nor when
// those are gone and there is room.
func (w *world) goesAlone(name string) {
	w.t.Helper()
	w.pass(5 * time.Second)
	w.wantStops("while they go", name)
	w.set(func() { w.otherDisk, w.endings = 0, map[types.UID]Ending{} })
	w.pass(20 * time.Second)
	w.wantStops("when they are gone", name)
}

// It has when files are gone with the processes that held them open.
func TestVolumesOfAPodHaveTimeToGoThoughADiskHasRoomWhenItEnds(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 450*mi)
		w.barren, w.takes["hog"] = true, 1500*time.Millisecond
		w.pass(500 * time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() { w.disk["hog"], w.endings = 0, ending("ephemeral-storage", 0) }) // Its volumes are still there.
		w.pass(2 * time.Second)
		w.set(func() { w.otherDisk = 500 * mi }) // Another has written meanwhile.
		w.goesAlone("hog")
	})
}

func TestTheLoopRestsWhileIsReclaimedWhatAPodHasLeft(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 450*mi)
		w.takes["hog"] = time.Second
		w.pass(freeing + 500*time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() { w.otherDisk, w.reclaims = 500*mi, func() { time.Sleep(time.Minute) } })
		before := w.judged.times.Load()
		w.pass(8 * time.Second)
		if n := w.judged.times.Load() - before; n > 400 {
			t.Errorf("judged %d times in eight seconds", n)
		}
	})
}
