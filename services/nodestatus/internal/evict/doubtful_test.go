package evict

import (
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/threshold"
)

func TestWhoIsOverItsLimitByFilesThatItHoldsOpenGoesAndTheFileIsNamed(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 20*mi, capped)
		w.pod("modest", 1, 20*mi, capped)
		w.pass(time.Second)
		w.set(func() { w.unlinked["greedy"], w.unlinked["modest"] = 90*mi, 70*mi })
		w.pass(interval + time.Second)
		w.wantStops("when it is seen once")
		w.pass(interval)
		w.wantStops("when it is so ten seconds later", "greedy")
		d := w.last()
		if !strings.HasSuffix(d.Why, `exceeds the limit "100Mi". ; container c holds 90Mi open in files that were removed`) || d.Held.Largest != "/scratch/greedy" {
			t.Errorf("%s", d.Why)
		}
	})
}

func TestAFileCountsOnceThoughADirectoryWasMeasuredBeforeItWasRemoved(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("web", 1, 10*mi, capped)
		w.set(func() { w.walked, w.unlinked["web"] = map[string]uint64{"web": 70 * mi}, 60*mi })
		w.pass(time.Minute)
		w.wantStops("what is there is 70Mi")
	})
}

func TestAFileThatIsClosedSoonCountsForNothing(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("web", 1, 10*mi, capped)
		for i := range 12 {
			w.set(func() { w.unlinked["web"] = uint64(95*mi) * uint64(i%2) })
			w.pass(interval)
		}
		w.wantStops("every other time it holds nothing")
	})
}

func TestOpenFilesThatTakeLongAreLookedAtLessOften(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("web", 1, 10*mi, capped)
		w.set(func() { w.lookTakes = 2 * time.Second })
		w.pass(4 * time.Minute)
		if w.looks < 3 || w.looks > 6 {
			t.Errorf("looked %d times", w.looks)
		}
	})
}

// Who has a million of files besides would else hold open as much as he likes.
func TestWhoseDirectoriesTakeTooLongGoesByWhatItHoldsOpenAlone(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 20*mi, capped)
		w.pod("unsure", 1, 20*mi, capped)
		w.set(func() {
			w.long = map[string]bool{"greedy": true, "unsure": true}
			w.unlinked["greedy"], w.unlinked["unsure"] = 110*mi, 90*mi
		})
		w.pass(3 * interval)
		w.wantStops("after two looks, one by one", "greedy")
	})
}

func TestASuspectWhoseDirectoriesTakeTooLongIsWalkedOnceAndAskedForOnceAMinute(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("unsure", 1, 20*mi, capped)
		w.set(func() { w.long, w.unlinked["unsure"] = map[string]bool{"unsure": true}, 90*mi })
		w.pass(5 * time.Minute)
		n := 0
		for _, since := range w.sinces {
			if since.IsZero() { // The others are questions for what was walked meanwhile.
				n++
			}
		}
		if asked := len(w.sinces) - n; n != 1 || asked < 3 || asked > 5 {
			t.Errorf("it was walked anew %d times, and asked for %d times", n, asked)
		}
	})
}
