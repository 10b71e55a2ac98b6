package evict

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// A pod decides how long its files take to be measured, and a machine out of memory kills
// whom it likes.
func TestMemoryIsLookedAfterWhileDisksAreMeasured(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 1, 500*mi)
		w.pod("hog", 10*mi, 0)
		w.set(func() {
			w.layout.ImagesApart, w.otherDisk, w.renewTakes, w.endings = true, 420*mi, 3*time.Second, map[types.UID]Ending{}
		})
		w.signals()
		w.wantStops("while disks are measured")
		w.set(func() { w.memory["hog"] = 950 * mi })
		w.signals()
		w.wantStops("when memory runs out", "hog")
		w.pass(10 * time.Second)
		w.wantStops("when that is over", "hog", "filler")
	})
}

func TestADiskIsMeasuredToItsEndWhenNobodyCanBeEvictedForMemoryThatIsShort(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 2*capacity, 500*mi) // which cannot be true, so that it does not go for memory
		w.set(func() { w.layout.ImagesApart, w.otherDisk, w.renewTakes = true, 420*mi, 3*time.Second })
		w.pass(2 * time.Second)
		w.wantStops("while disks are measured")
		w.pass(3 * time.Second)
		w.wantStops("then", "filler")
	})
}

// What it has for a moment is over at the second look.
func TestWhoIsShortOfMemoryForAMomentAgainAndAgainDoesNotKeepADiskFromBeingMeasured(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 1, 500*mi)
		w.set(func() { w.layout.ImagesApart, w.otherDisk, w.renewTakes = true, 420*mi, 3*time.Second })
		for range 9 {
			w.pass(time.Second)
			w.set(func() {
				w.frame.Signals = slices.Clone(w.frame.Signals)
				w.frame.Signals[0].Available = 50 * mi
			})
			w.moved.Set()
			synctest.Wait()
			w.pass(100 * time.Millisecond)
		}
		w.wantStops("in ten seconds", "filler")
	})
}

// A second look does not find it, for what it sees is some tenths of a second older, and a
// moment later it would.
func TestMemoryThatWasShortBeforeDisksAreMeasuredIsLookedAfterMeanwhileToo(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 1, 500*mi)
		w.pod("hog", 10*mi, 0)
		w.set(func() { w.layout.ImagesApart, w.renewTakes = true, 3*time.Second })
		w.signals()
		w.set(func() {
			w.otherDisk = 420 * mi
			now := time.Now()
			w.frame = pressure.Frame{Heard: now, Layout: w.layout, Signals: []pressure.Signal{
				{Name: "memory.available", Available: 50 * mi, Capacity: capacity, Time: now},
				{Name: "nodefs.available", Available: 80 * mi, Capacity: capacity, Time: now},
			}}
		})
		for range 2 { // The first look is at memory, the next at the disk.
			w.moved.Set()
			synctest.Wait()
		}
		w.set(func() { w.memory["hog"] = 950 * mi })
		w.pass(remeasured + 100*time.Millisecond)
		w.wantStops("when memory is looked at again", "hog")
		w.pass(15 * time.Second)
		w.wantStops("when that is over", "hog", "filler")
	})
}

func TestTheMessageSaysWhatIsLeftWhenAPodGoesThoughDisksWereMeasuredBefore(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 1, 500*mi)
		w.set(func() { w.layout.ImagesApart, w.otherDisk, w.lookTakes = true, 420*mi, 2*time.Second })
		w.pass(time.Second)
		w.wantStops("while open files are looked at")
		w.set(func() { w.otherDisk = 410 * mi })
		w.pass(3 * time.Second)
		w.wantStops("then", "filler")
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := w.stops[0].Message; !strings.Contains(got, "available: 90Mi") {
			t.Errorf("it goes with %q", got)
		}
	})
}

func diskAndProcesses() threshold.Settings {
	return threshold.Settings{
		Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "pid.available": "100"},
		Soft: map[string]string{"nodefs.available": "30%"}, SoftGrace: map[string]string{"nodefs.available": "30s"},
	}
}

func TestMemoryIsLookedAfterEachTimeThatDisksAreMeasured(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 1, 500*mi)
		w.pod("first", 10*mi, 0)
		w.pod("second", 10*mi, 0)
		w.set(func() {
			w.layout.ImagesApart, w.otherDisk, w.renewTakes, w.endings = true, 420*mi, 4*time.Second, map[types.UID]Ending{}
		})
		w.pass(time.Second)
		w.set(func() { w.memory["first"] = 950 * mi })
		w.signals()
		w.wantStops("when memory runs out", "first")
		w.pass(time.Second)
		w.set(func() { w.memory["second"] = 950 * mi })
		w.signals()
		w.wantStops("when it does so again", "first", "second")
		w.pass(3 * time.Second)
		w.wantStops("when that is over, who fills the disk", "first", "second", "filler")
	})
}

func TestProcessesAreLookedAfterWhateverADiskWaitsFor(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"a measurement": func(w *world) { w.layout.ImagesApart, w.renewTakes = true, 4*time.Second },
		"a reclaim":     func(w *world) { w.reclaims = func() { time.Sleep(time.Minute) } },
		"a look at limits": func(w *world) {
			w.weighs = func() { time.Sleep(time.Minute) }
		},
	} {
		in(t, diskAndProcesses(), Config{LocalLimits: true}, func(w *world) {
			w.pod("filler", 1, 500*mi, func(p *v1.Pod) {
				p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10Gi")}
			})
			w.pod("bomb", 1, 0)
			w.set(func() { w.pids = map[string]uint64{"bomb": 10}; w.otherDisk = 420 * mi; prepare(w) })
			w.pass(time.Second)
			w.wantStops("while a disk waits for " + name)
			w.set(func() { w.pids["bomb"] = 950 })
			w.signals()
			w.wantStops("processes are short while a disk waits for "+name, "bomb")
		})
	}
}

func TestNoHardThresholdWaitsForTheTimeThatASoftOneOfSomethingElseHasGiven(t *testing.T) {
	in(t, diskAndProcesses(), Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("filler", 1, 750*mi, patient)
		w.pod("bomb", 1, 0)
		w.set(func() { w.pids, w.takes["filler"] = map[string]uint64{"bomb": 10}, 10*time.Minute })
		w.pass(40 * time.Second)
		w.wantStops("by the soft threshold", "filler")
		w.set(func() { w.pids["bomb"] = 950 })
		w.pass(time.Second)
		w.wantStops("when processes are short", "filler", "bomb")
	})
	soft := diskAndProcesses()
	soft.Soft, soft.SoftGrace = map[string]string{"memory.available": "300Mi"}, map[string]string{"memory.available": "30s"}
	in(t, soft, Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("hog", 750*mi, 0, patient)
		w.pod("filler", 1, 10*mi)
		w.set(func() { w.takes["hog"] = 10 * time.Minute })
		w.pass(40 * time.Second)
		w.wantStops("by the soft threshold", "hog")
		w.set(func() { w.disk["filler"] = 950 * mi })
		w.pass(10 * time.Second)
		w.wantStops("when a disk is short", "hog", "filler")
	})
}

func TestAPodThatDoesNotEndIsNotWaitedForWhileProcessesRunOut(t *testing.T) {
	in(t, diskAndProcesses(), Config{}, func(w *world) {
		w.pod("stuck", 1, 0)
		w.pod("second", 1, 0)
		w.set(func() { w.pids, w.takes["stuck"] = map[string]uint64{"stuck": 700, "second": 210}, time.Hour })
		w.pass(20 * time.Second)
		w.wantStops("at first", "stuck")
		w.set(func() { w.pids["second"] = 250 })
		w.pass(time.Second)
		w.wantStops("when fewer are left", "stuck", "second")
	})
}

func limited(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10Gi")}
}

// Pods decide how long either takes.
func TestLooksAtLimitsDoNotKeepADiskFromBeingRelieved(t *testing.T) {
	for _, looks := range []time.Duration{2 * time.Second, 3500 * time.Millisecond, 4 * time.Second, 5 * time.Second, 9 * time.Second} {
		for _, takes := range []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second} {
			in(t, hardDisk(), Config{LocalLimits: true}, func(w *world) {
				w.pod("filler", 1, 500*mi, limited)
				w.set(func() {
					w.layout.ImagesApart, w.otherDisk, w.renewTakes = true, 420*mi, takes
					w.weighs = func() { time.Sleep(looks) }
				})
				w.pass(2 * time.Minute)
				w.wantStops("looks at limits take "+looks.String()+", disks "+takes.String(), "filler")
			})
		}
	}
}

// Who fills a disk sees how much is left, and for how long it is measured is in its hand.
func TestWhoFreesADiskForAMomentWhileItIsMeasuredGoesAllTheSame(t *testing.T) {
	for _, full := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond, 3500 * time.Millisecond} {
		in(t, hardDisk(), Config{}, func(w *world) {
			w.pod("filler", 1, 500*mi)
			w.set(func() { w.layout.ImagesApart, w.otherDisk, w.renewTakes = true, 420*mi, 4*time.Second })
			for range 20 {
				w.pass(full)
				w.set(func() {
					if _, there := w.disk["filler"]; there {
						w.disk["filler"] = 10 * mi
					}
				})
				w.pass(500 * time.Millisecond)
				w.set(func() {
					if _, there := w.disk["filler"]; there {
						w.disk["filler"] = 500 * mi
					}
				})
			}
			w.wantStops("full for "+full.String(), "filler")
		})
	}
}
