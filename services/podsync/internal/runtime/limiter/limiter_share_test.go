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

// A runtime may take minutes to remove what a pod has filled with files, and there may be
// many of these: a pod that is to end does not wait behind them.
func TestRemovalsThatHangLeaveSlotsToPodsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 4, Initial: 4, Most: 4})
		ctx, cancel := context.WithCancel(t.Context())
		for range 40 {
			go func() {
				for ctx.Err() == nil {
					release, err := p.Acquire(ctx, Order{Idle: true, Created: time.Now()})
					if err != nil {
						return
					}
					select {
					case <-time.After(2 * time.Minute):
					case <-ctx.Done():
					}
					release()
				}
			}()
		}
		time.Sleep(6 * time.Second)
		for i := range uint64(20) {
			patient, impatient := context.WithTimeout(ctx, time.Second)
			release, err := p.Acquire(patient, Order{Namespace: "ns", Created: time.Now(), Seq: i})
			impatient()
			if err != nil {
				t.Errorf("the %dth pod that is to end has no slot after a second", i)
				break
			}
			time.Sleep(100 * time.Millisecond)
			release()
			time.Sleep(10 * time.Second)
		}
		cancel()
		synctest.Wait()
		if p.taken != 0 || len(p.of) != 0 || len(p.waiting) != 0 {
			t.Errorf("at the end %d slots are taken, by %v, and %d wait", p.taken, p.of, len(p.waiting))
		}
	})
}
