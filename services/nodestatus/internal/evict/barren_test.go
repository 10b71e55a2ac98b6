package evict

import (
	"testing"
	"time"
)

func TestAFullDiskWithNobodyToEvictIsReclaimedLessAndLessOften(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.set(func() { w.otherDisk, w.barren = 950*mi, true })
		w.pass(10 * time.Minute)
		if n := len(w.asked); n < 9 || n > 13 {
			t.Errorf("reclaimed %d times in ten minutes", n)
		}
		// Somebody who can go does so after another try.
		before := len(w.asked)
		w.set(func() { w.otherDisk = 0 })
		w.pass(11 * time.Minute)
		w.pod("filler", 1, 950*mi)
		w.pass(10 * time.Second)
		w.wantStops("who fills it", "filler")
		if len(w.asked) == before {
			t.Error("nothing was tried before")
		}
	})
}

func TestAPodGoesOnlyAfterAnotherTryThoughNothingWasFoundJustNow(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.set(func() { w.otherDisk, w.barren = 950*mi, true })
		w.pass(15 * time.Second)
		w.pod("small", 1, 1*mi)
		w.set(func() { w.barren, w.reclaims = false, func() { w.set(func() { w.otherDisk = 100 * mi }) } })
		w.pass(30 * time.Second)
		w.wantStops("an image came free meanwhile")
	})
}

// It sees its peers' images go, or just guesses.
func TestWhoFreesADiskWheneverSomethingIsReclaimedAndFillsItAgainGoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("small", 1, 5*mi)
		w.pod("dodger", 1, 950*mi)
		w.set(func() {
			w.barren = true
			w.reclaims = func() {
				w.set(func() { w.disk["dodger"] = 10 * mi })
				time.AfterFunc(5*time.Second, func() {
					w.set(func() {
						if _, there := w.disk["dodger"]; there {
							w.disk["dodger"] = 950 * mi
						}
					})
				})
			}
		})
		w.pass(2 * time.Minute)
		w.wantStops("in two minutes", "dodger")
	})
}
