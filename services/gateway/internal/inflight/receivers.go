package inflight

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"
)

// receivers are the answers of a class that are being received. While others wait for a
// place, who has received one for longer than slow is cut off: first whoever has most of
// them, and of those who receives slowest. Without this a few addresses, each with the
// places that it may have, would keep everybody out for as long as an answer may take. Safe
// for concurrent use.
type receivers struct {
	slow time.Duration
	// has is how many places somebody has.
	has func(whose string) int

	mu      sync.Mutex
	all     map[*receiver]struct{}
	waiting int // who wait for a place
	timer   *time.Timer
}

func newReceivers(slow time.Duration, has func(string) int) *receivers {
	return &receivers{slow: slow, has: has, all: map[*receiver]struct{}{}}
}

// receiver is an answer. The time that it takes counts from its first byte: how long it
// takes until there is one is not its client's fault.
type receiver struct {
	http.ResponseWriter
	whose string

	mu       sync.Mutex
	since    time.Time // of the first byte; zero before it
	received int64
	over     bool // it has been served, or is cut off
}

// pieceBytes is how much of an answer is written at once, so that it is seen how fast it is
// received.
const pieceBytes = 64 << 10

// Unwrap lets http.ResponseController see what is below.
func (r *receiver) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Write implements io.Writer.
func (r *receiver) Write(p []byte) (written int, err error) {
	r.mu.Lock()
	if r.since.IsZero() {
		r.since = time.Now()
	}
	r.mu.Unlock()
	for {
		n, err := r.ResponseWriter.Write(p[written:min(written+pieceBytes, len(p))])
		written += n
		r.mu.Lock()
		r.received += int64(n)
		r.mu.Unlock()
		if err != nil || written >= len(p) {
			return written, err
		}
	}
}

// end says that nothing is written any more: the writer below is then not to be touched.
func (r *receiver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// cut has what is being written fail.
func (r *receiver) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.over = true
		// A writer that knows no deadlines is a test's.
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(-time.Second))
	}
}

// speed is how fast it is received, in bytes a second, and for how long; false when nothing
// is being received.
func (r *receiver) speed(now time.Time) (rate float64, took time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	took = now.Sub(r.since)
	return float64(r.received) / max(took.Seconds(), 1e-3), took, !r.since.IsZero() && !r.over
}

// begin notes an answer until end is called.
func (r *receivers) begin(w http.ResponseWriter, whose string) (one *receiver, end func()) {
	one = &receiver{ResponseWriter: w, whose: whose}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[one] = struct{}{}
	return one, func() {
		one.end()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, one)
	}
}

// hurry notes that somebody waits for a place, until end is called.
func (r *receivers) hurry() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting++
	if r.waiting == 1 {
		r.timer = time.AfterFunc(0, r.look)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.waiting--; r.waiting == 0 {
			r.timer.Stop()
		}
	}
}

// look cuts off as many as there are who wait, and looks again when the next one is slow.
func (r *receivers) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == 0 {
		return
	}
	type slow struct {
		*receiver
		has  int
		rate float64
	}
	var all []slow
	now, next := time.Now(), r.slow
	for one := range r.all {
		rate, took, ok := one.speed(now)
		switch {
		case ok && took >= r.slow:
			all = append(all, slow{one, r.has(one.whose), rate})
		case ok:
			next = min(next, r.slow-took)
		}
	}
	slices.SortFunc(all, func(a, b slow) int { return cmp.Or(cmp.Compare(b.has, a.has), cmp.Compare(a.rate, b.rate)) })
	for _, one := range all[:min(len(all), r.waiting)] {
		one.cut()
	}
	if len(all) > r.waiting { // they have their turn when these have gone and somebody waits still
		next = min(next, time.Second)
	}
	r.timer.Reset(next)
}
