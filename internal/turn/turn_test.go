package turn

import (
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
