package evict

import (
	"errors"
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

func TestWhatAReclaimFoundBeforeStatsWasAwayIsNotAllThatThereIsAfterIt(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("small", 1, 10*mi)
		n := 0
		w.set(func() {
			w.otherDisk = 950 * mi
			w.reclaims = func() {
				if n++; n > 1 {
					w.set(func() { w.otherDisk = 100 * mi })
				}
				time.Sleep(3 * time.Second)
			}
		})
		w.pass(time.Second)
		w.set(func() { w.statsErr = errors.New("away") })
		time.Sleep(26 * time.Second) // no frame; images come meanwhile
		w.set(func() { w.statsErr = nil })
		w.pass(20 * time.Second)
		w.wantStops("images can be freed by now")
		if n != 2 {
			t.Errorf("reclaimed %d times", n)
		}
	})
}
