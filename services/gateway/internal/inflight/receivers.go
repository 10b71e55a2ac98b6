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
// them, and of those who receives slowest; for somebody who has as many only one of his own.
// Without this a few addresses, each with the places that it may have, would keep everybody
// out for as long as an answer may take. Safe for concurrent use.
type receivers struct {
	slow time.Duration
	// has is how many places somebody has.
	has func(whose string) int

	mu      sync.Mutex
	all     map[*receiver]struct{}
	waiting map[string]int // who wait for a place, and how many times
	timer   *time.Timer
}

func newReceivers(slow time.Duration, has func(string) int) *receivers {
	return &receivers{slow: slow, has: has, all: map[*receiver]struct{}{}, waiting: map[string]int{}}
}

// receiver is an answer. The time that it takes is that in which something is being
// written: how long it takes until there is something is not its client's fault.
type receiver struct {
	http.ResponseWriter
	whose string

	mu       sync.Mutex
	writing  time.Time     // since when something is; zero when nothing is
	took     time.Duration // what was written before that
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
	r.writing = time.Now()
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.took += time.Since(r.writing)
		r.writing = time.Time{}
	}()
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
// was or is being received.
func (r *receiver) speed(now time.Time) (rate float64, took time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if took = r.took; !r.writing.IsZero() {
		took += now.Sub(r.writing)
	}
	return float64(r.received) / max(took.Seconds(), 1e-3), took, (took > 0 || !r.writing.IsZero()) && !r.over
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

// waits notes that somebody waits for a place, until end is called.
func (r *receivers) waits(whose string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[whose]++
	if r.timer == nil {
		r.timer = time.AfterFunc(0, r.look)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.waiting[whose]--; r.waiting[whose] == 0 {
			delete(r.waiting, whose)
		}
	}
}

// slowOne is an answer that somebody receives slowly who has so many places.
type slowOne struct {
	*receiver
	has  int
	rate float64
}

// soonest is how long it takes at least until it is looked again who is slow: one of whom
// nothing is being written stays just as slow.
const soonest = 100 * time.Millisecond

// slowLocked are the answers that are slow, those first that are cut off first, and when
// the next one is.
func (r *receivers) slowLocked() (all []slowOne, next time.Duration) {
	now, next := time.Now(), r.slow
	for one := range r.all {
		rate, took, ok := one.speed(now)
		switch {
		case ok && took >= r.slow:
			all = append(all, slowOne{one, r.has(one.whose), rate})
		case ok:
			next = min(next, max(r.slow-took, soonest))
		}
	}
	slices.SortFunc(all, func(a, b slowOne) int { return cmp.Or(cmp.Compare(b.has, a.has), cmp.Compare(a.rate, b.rate)) })
	return all, next
}

// look cuts off one for each who waits, and looks again when the next one is slow.
func (r *receivers) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.timer = nil
		return
	}
	all, next := r.slowLocked()
	for whose, times := range r.waiting {
		has := r.has(whose)
		all = slices.DeleteFunc(all, func(one slowOne) bool {
			if times == 0 || one.has <= has && one.whose != whose {
				return false
			}
			times--
			one.cut()
			return true
		})
	}
	if len(all) > 0 { // who has gone by then may have made room for others than those who wait
		next = min(next, time.Second)
	}
	r.timer = time.AfterFunc(next, r.look)
}
