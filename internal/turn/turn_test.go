package turn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneAtATimeIsAtAThingAndNobodyWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var all sync.WaitGroup
		count, most := 0, 0
		began := time.Now()
		for range 10 {
			all.Go(func() {
				defer turns.Take("file")()
				count++
				most = max(most, count)
				time.Sleep(time.Second)
				count--
			})
		}
		time.Sleep(time.Millisecond)
		turns.Take("other")()
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("another thing was waited for: %v", took)
		}
		all.Wait()
		if took := time.Since(began); most != 1 || took != 10*time.Second {
			t.Errorf("%d at once, ten took %v", most, took)
		}
		if len(turns.of) != 0 {
			t.Errorf("%d places are kept", len(turns.of))
		}
	})
}

func TestWhoDoesNotGetTheTurnInTimeLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		done := turns.Take("file")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := turns.TakeWithin(ctx, "file"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the turn was had twice: %v", err)
		}
		done()
		done, err := turns.TakeWithin(t.Context(), "file")
		if err != nil {
			t.Fatal(err)
		}
		done()
		if len(turns.of) != 0 {
			t.Errorf("%d places are kept", len(turns.of))
		}
	})
}
