package limiter

import (
	"context"
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
