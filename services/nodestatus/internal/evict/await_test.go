package evict

import (
	"testing"
	"time"
)

// Whose files take long to be measured frees for a moment what it has filled, again and again.
func TestWhoIsShortAnewEachTimeIsNotWaitedForWithoutEnd(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 20*mi)
		w.set(func() { w.layout.ImagesApart, w.long = true, map[string]bool{"hog": true} })
		for range 6 {
			w.set(func() { w.otherDisk = 915 * mi })
			w.pass(layersAge - 2*time.Second)
			w.set(func() { w.otherDisk = 100 * mi })
			w.pass(2 * time.Second)
		}
		w.wantStops("in a minute", "hog")
	})
}

// What is done about others begins anew for how long figures are waited for.
func TestPodsThatEndForLimitsOfTheirOwnDoNotKeepAnotherFromGoing(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 20*mi)
		w.set(func() {
			w.layout.ImagesApart, w.long, w.otherDisk = true, map[string]bool{"hog": true}, 915*mi
			w.walks = func() { // by the loop's own goroutine
				if time.Since(w.loop.after) >= layersAge-2*time.Second {
					w.loop.after = time.Now() // as after the end of one
				}
			}
		})
		w.pass(time.Minute)
		w.wantStops("in a minute", "hog")
	})
}

func TestHowLongWasWaitedIsForgottenWhenAPodIsChosenAndAfterAWhile(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		now, l := time.Now(), New(Config{}, Deps{})
		full := func(at time.Time) {
			for range int(patience / soon) {
				if !l.awaits("nodefs.available", at, at) {
					t.Fatal("it is not waited for")
				}
			}
			if l.awaits("nodefs.available", at, at) {
				t.Error("it is waited for without end")
			}
			if !l.awaits("nodefs.inodesFree", at, at) {
				t.Error("another signal's waits count")
			}
		}
		full(now)
		l.chose("nodefs.available")
		full(now)
		time.Sleep(forgiven)
		full(time.Now())
		if l.awaits("imagefs.available", time.Now(), time.Now().Add(-layersAge)) {
			t.Error("layers are waited for that the runtime has weighed meanwhile")
		}
	})
}
