package idle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestALullComesWhenNothingHasBeenUnderWayForAMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		// work is when each thing begins and how long it takes.
		work [][2]time.Duration
		want time.Duration
	}{
		"nothing is under way":       {nil, settle},
		"one thing":                  {[][2]time.Duration{{0, 100 * time.Millisecond}}, 100*time.Millisecond + settle},
		"one that begins a bit late": {[][2]time.Duration{{settle / 2, 100 * time.Millisecond}}, settle/2 + 100*time.Millisecond + settle},
		"two with a gap between":     {[][2]time.Duration{{0, time.Millisecond}, {settle / 2, 200 * time.Millisecond}}, settle/2 + 200*time.Millisecond + settle},
		"two at once":                {[][2]time.Duration{{0, 100 * time.Millisecond}, {10 * time.Millisecond, 300 * time.Millisecond}}, 310*time.Millisecond + settle},
		"what takes too long":        {[][2]time.Duration{{0, time.Hour}}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New()
				for _, w := range tc.work {
					time.AfterFunc(w[0], func() {
						end := g.Begin()
						time.Sleep(w[1])
						end()
						end()
					})
				}
				synctest.Wait()
				began := time.Now()
				g.WaitIdle(t.Context(), began, began.Add(time.Second))
				if took := time.Since(began); took != tc.want {
					t.Errorf("it came after %v, want %v", took, tc.want)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

func TestALullIsNotWaitedForBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		defer g.Begin()()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		g.WaitIdle(ctx, began, began.Add(time.Hour))
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for %v", took)
		}
	})
}

func TestWhatIsOldNeedNotWaitForAQuietMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		New().WaitIdle(t.Context(), began.Add(-time.Minute), began.Add(time.Second))
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %v", took)
		}
	})
}
