package evict

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestPodsyncIsToldOfPressureAtOnceAndAgainWhileItLasts(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		told := func() []string {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.told)
		}
		w.signals()
		if got := told(); len(got) > 0 {
			t.Errorf("that there is none is told before it is known what a run before this one said: %v", got)
		}
		w.judge.Seed(pressure.Told{})
		w.signals()
		if got := told(); !slices.Equal(got, []string{"[] 1h0m0s"}) {
			t.Errorf("at first %v", got)
		}
		time.Sleep(5 * time.Minute)
		w.set(func() { w.otherMemory = 950 * mi })
		w.signals()
		if got := told(); len(got) != 2 || got[1] != "[MemoryPressure] 1m0s" {
			t.Errorf("at once %v", got)
		}
		time.Sleep(time.Minute)
		if got := told(); len(got) != 5 {
			t.Errorf("in a minute %v", got)
		}
		w.set(func() { w.otherMemory = 0 })
		w.signals()
		time.Sleep(5*time.Minute + time.Second)
		got := told()
		if got[len(got)-1] != "[] 1h0m0s" {
			t.Errorf("after the transition %v", got)
		}
		time.Sleep(time.Hour)
		if again := told()[len(got):]; !slices.Equal(again, []string{"[] 1h0m0s", "[] 1h0m0s"}) && !slices.Equal(again, []string{"[] 1h0m0s", "[] 1h0m0s", "[] 1h0m0s"}) {
			t.Errorf("it is not told again before it lapses, or too often: %v", again)
		}
	})
}

func TestAPressureOfTheRunBeforeIsToldUntilItsTransitionIsOver(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.judge.Seed(pressure.Told{Kinds: []pressure.Kind{pressure.Disk}, Time: time.Now()})
		w.signals()
		if len(w.told) != 1 || w.told[0] != "[DiskPressure] 1m0s" {
			t.Errorf("%v", w.told)
		}
	})
}
