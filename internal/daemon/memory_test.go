package daemon

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheHeapGrowsWhileMemoryIsUsedFastAndIsGivenBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		base int
		live uint64
		want []int
	}{
		{"a small heap", 50, 2 << 20, []int{400, 50, 400, 50}},
		{"a larger one gets no more bytes", 50, 8 << 20, []int{200, 50, 200, 50}},
		{"a large one has room enough", 100, 64 << 20, []int{100}},
		{"one that is not known", 50, 0, []int{400, 50, 400, 50}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var set []int
				freed := 0
				p := pace{base: tc.base, now: tc.base, live: func() uint64 { return tc.live }, set: func(percent int) { set = append(set, percent) }}
				collected := make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); p.follow(ctx, collected, func() { freed++ }) }()

				time.Sleep(settleAfter + time.Second)
				synctest.Wait()
				if freed != 1 {
					t.Errorf("after the start memory was given back %d times", freed)
				}
				set = nil
				// Some at a time, once in a while, are as it should be.
				for range 5 {
					for range inARow {
						collected <- struct{}{}
					}
					time.Sleep(2 * often)
				}
				synctest.Wait()
				if len(set) != 0 || freed != 1 {
					t.Errorf("without need: set %v, gave back %d times", set, freed-1)
				}
				for range 2 {
					for range 20 {
						collected <- struct{}{}
						time.Sleep(often / 10)
					}
					time.Sleep(2 * calmAfter)
				}
				synctest.Wait()
				if tc.want[0] == tc.base {
					tc.want = nil
				}
				if !slices.Equal(set, tc.want) || freed != 1+len(tc.want)/2 {
					t.Errorf("set %v, want %v; gave back %d times", set, tc.want, freed-1)
				}
				cancel()
				<-done
			})
		})
	}
}

// heard collects, and says whether that was told.
func heard(told <-chan struct{}, within time.Duration) bool {
	runtime.GC()
	select {
	case <-told:
		return true
	case <-time.After(within):
		return false
	}
}

func TestEachCollectionIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	told := collections(ctx)
	for i := range 3 {
		// What is laid out may be taken for used once, by whoever was interrupted on it.
		for collected := 1; !heard(told, 10*time.Second); collected++ {
			if collected == 6 {
				t.Fatalf("collection %d was not told", i)
			}
		}
	}
	cancel()
	if n := liveHeap(); n == 0 {
		t.Error("nothing is live")
	}
}
