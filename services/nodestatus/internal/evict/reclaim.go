package evict

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// reclaim is podsync freeing what nobody needs, which may take long; memory is
// looked after meanwhile.
type reclaim struct {
	by    pressure.Met
	asked eviction.Reclaim
	done  chan struct{}
	// behind: it is for what a pod that was evicted has left.
	behind bool
	// heard is whether the loop has heard that it is done.
	heard bool
	// what, err and at, which is when, are set when done is closed.
	what Reclaimed
	err  error
	at   time.Time
}

// freeing is how long after it the runtime may take to free what was removed.
const freeing = 2 * time.Second

func (r *reclaim) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// hasFreed says whether it was for this signal, and has finished; nil was for none.
func (r *reclaim) hasFreed(signal string) bool {
	return r != nil && r.by.Signal == signal && r.finished()
}

// covers says whether all of what was tried.
func (r *reclaim) covers(what eviction.Reclaim) bool {
	return (r.asked.Containers || !what.Containers) && (r.asked.Images || !what.Images)
}

// result is what came of it; nil when podsync cannot do it.
func (r *reclaim) result() *ReclaimResult {
	if !r.finished() || errors.Is(r.err, rpcerr.ErrUnimplemented) {
		return nil
	}
	out := &ReclaimResult{Containers: r.what.Containers, Images: r.what.Images, ImageBytes: r.what.ImageBytes, Error: strings.Join(r.what.Failed, "; ")}
	if r.err != nil {
		out.Error = r.err.Error()
	}
	return out
}

// reclaimed says whether all was freed for a threshold that there is beside pods, or
// there was nothing lately; if not, it has that begun, once podsync can do it.
func (l *Loop) reclaimed(ctx context.Context, m pressure.Met, layout threshold.Layout) bool {
	what := eviction.Reclaimable(m.Signal, layout)
	if what == (eviction.Reclaim{}) {
		return true
	}
	if r := l.reclaim; r != nil && !r.finished() {
		return false
	} else if r != nil && r.covers(what) && !l.forgets(r) {
		if free := r.at.Add(freeing); r.found() && time.Now().Before(free) {
			l.next[m.Signal] = free
			return false
		}
		return true
	}
	switch {
	case l.undone.waives():
		return true
	case l.undone.owed:
		if !l.ready(ctx, m) {
			return false
		}
	case l.barren[what].rests(time.Now()):
		return true
	}
	l.begin(ctx, m, what)
	return false
}

// begin has podsync free what nobody needs.
func (l *Loop) begin(ctx context.Context, m pressure.Met, what eviction.Reclaim) {
	l.learn()
	l.announce(ctx, m)
	r := &reclaim{by: m, asked: what, done: make(chan struct{}), behind: l.undone.again(time.Now())}
	l.reclaim = r
	l.running.Go(func() {
		r.what, r.err = l.deps.Podsync.Reclaim(ctx, what)
		r.at = time.Now()
		close(r.done)
	})
}

// over is done with a reclaim when nothing is said to be short any more. A stats that was
// just started says nothing yet of some disks, of which nobody knows then: it may be said
// soon.
func (l *Loop) over(ctx context.Context, signals []pressure.Signal, now time.Time) {
	switch r := l.reclaim; {
	case pressure.Says(signals, r.by.Signal):
		l.enough(ctx)
	case now.Sub(r.at) >= interval:
		l.learn()
		l.undone = undone{}
	}
}

// enough notes that what was reclaimed was.
func (l *Loop) enough(ctx context.Context) {
	r := l.learn()
	l.after = time.Now()
	if !r.undone() {
		l.undone = undone{}
	}
	if !r.behind { // Else a pod had to go.
		l.note(ctx, Decision{Shortage: shortage(r.by), Outcome: Enough, Reclaimed: r.result(), Why: "after that enough is left, and no pod has to go"})
	}
}
