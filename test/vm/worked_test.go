package vm

import (
	"sync/atomic"
	"time"
)

// done is the time that the machine has worked, in nanoseconds.
var done atomic.Int64

// worked is a clock that stands still while the machine gets no processor: its
// host may have so much else to do that a second here is the work of a tenth of
// one, and what takes a minute may take ten.
func worked() time.Duration { return time.Duration(done.Load()) }

// work measures again and again how long the same small sum takes. The shortest
// that was seen is the machine undisturbed; the clock goes slower by as much as
// the last ones took longer.
func work() {
	const pause, window = 250 * time.Millisecond, 16
	var least time.Duration
	var last [window]time.Duration
	for n := 0; ; n++ {
		began := time.Now()
		time.Sleep(pause) // between two measurements
		sum()
		last[n%window] = max(time.Since(began)-pause, time.Microsecond)
		if least == 0 || last[n%window] < least {
			least = last[n%window]
		}
		var all time.Duration
		count := min(n+1, window)
		for _, took := range last[:count] {
			all += took
		}
		share := float64(least) * float64(count) / float64(all)
		done.Add(int64(share * float64(time.Since(began))))
	}
}

// sum works for some milliseconds.
func sum() {
	x := uint64(time.Now().UnixNano())
	for range 1_000_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

// sink keeps the compiler from leaving the sum out.
var sink atomic.Uint64
