package limiter

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A namespace whose pods are older than a neighbour's has containers that end at once
// and are restarted, each start of which takes a few seconds (less than HungAfter): an
// image with a large VOLUME, copied by the runtime at each creation.
func TestOneNamespaceWhoseStartsAreSlowLeavesSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 2, Initial: 4, Most: 16})
		ctx, cancel := context.WithCancel(t.Context())
		old, young := time.Now(), time.Now().Add(time.Hour)
		for i := range 64 {
			go func() {
				for ctx.Err() == nil {
					release, err := p.Acquire(ctx, Order{Namespace: "attacker", Created: old, Seq: uint64(i)})
					if err != nil {
						return
					}
					time.Sleep(4500 * time.Millisecond)
					release()
				}
			}()
		}
		time.Sleep(time.Minute)
		began := time.Now()
		wait, stop := context.WithTimeout(ctx, 10*time.Minute)
		release, err := p.Acquire(wait, Order{Namespace: "neighbour", Created: young})
		stop()
		if err != nil {
			t.Errorf("a neighbour's younger pod had no slot within %v: %v", time.Since(began), err)
		} else {
			release()
		}
		cancel()
		synctest.Wait()
		time.Sleep(time.Minute)
	})
}

// What has ended is removed when there is nothing else to do: the removals of pods that
// are gone, which are nobody's, must not take half of the slots from the stops of others.
func TestNobodysWorkTakesNoSlotFromANamespaceThatHasWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 4, Initial: 4, Most: 4})
		var done []string
		var mu sync.Mutex
		work := func(what string, order Order) {
			release, err := p.Acquire(t.Context(), order)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			done = append(done, what)
			mu.Unlock()
			release()
		}
		began := time.Now()
		for i := range 4 { // all slots are taken
			go work("first", Order{Namespace: "ns", Created: began, Seq: uint64(i)})
		}
		synctest.Wait()
		for range 8 {
			go work("removal", Order{Created: began.Add(time.Hour)})
		}
		synctest.Wait()
		for i := range 8 {
			go work("stop", Order{Namespace: "ns", Created: began.Add(time.Minute), Seq: uint64(i)})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(done) != 20 || slices.Contains(done[:12], "removal") {
			t.Errorf("in this order: %v", done)
		}
	})
}
