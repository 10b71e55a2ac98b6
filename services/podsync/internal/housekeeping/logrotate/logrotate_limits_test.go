package logrotate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestOtherLimitsAreKeptToFromTheNextLookOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop, rotator := w.startRotator(Config{MaxSize: 100_000, MaxFiles: 9, Interval: 10 * time.Second})
		defer stop()
		w.runs(podstate.StateRunning)
		w.write(50_000)
		time.Sleep(time.Minute)
		if n := w.counts(); n != 0 {
			t.Fatalf("rotated %d times", n)
		}
		rotator.SetLimits(20_000, 3)
		time.Sleep(11 * time.Second)
		if n := w.counts(); n != 1 {
			t.Errorf("rotated %d times with a lower limit", n)
		}
		for range 5 {
			w.write(30_000)
			time.Sleep(11 * time.Second)
		}
		if names := w.names(); len(names) != 3 {
			t.Errorf("files %v", names)
		}
		rotator.SetLimits(0, 3)
		before := w.counts()
		w.write(500_000)
		time.Sleep(time.Minute)
		if n := w.counts(); n != before {
			t.Errorf("rotated %d times without a limit", n-before)
		}
		rotator.SetLimits(100_000, 3)
		time.Sleep(11 * time.Second)
		if n := w.counts(); n != before+1 {
			t.Errorf("rotated %d times with one again", n-before)
		}
	})
}
