package evict

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// A pod decides how long its files take to be measured, and a machine out of memory kills
// whom it likes.
func TestMemoryIsLookedAfterWhileDisksAreMeasured(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("filler", 1, 500*mi)
		w.pod("hog", 10*mi, 0)
		w.set(func() { w.layout.ImagesApart, w.otherDisk, w.renewTakes = true, 420*mi, 3*time.Second })
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
