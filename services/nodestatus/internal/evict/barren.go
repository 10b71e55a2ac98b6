package evict

import (
	"context"
	"time"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// firstRest is for how long nothing is reclaimed after nothing was found, and longestRest
	// after that was so again and again.
	firstRest   = interval
	longestRest = time.Minute
	// convincing is how often in a row nothing has to be found for a pod to go without
	// another try: who frees a disk whenever one is made, and fills it again, would never.
	convincing = 3
)

// barren is how often in a row a reclaim has found nothing, and when last. Nil: it never did.
type barren struct {
	times int
	last  time.Time
}

// rests says whether the next one is not to be tried yet.
func (b *barren) rests(now time.Time) bool {
	if b == nil {
		return false
	}
	rest := firstRest
	for i := 1; i < b.times && rest < longestRest; i++ {
		rest *= 2
	}
	return now.Sub(b.last) < min(rest, longestRest)
}

// found says whether a reclaim that has finished did.
func (r *reclaim) found() bool { return r.what.Containers+r.what.Images > 0 }

// learn takes in what came of a reclaim that has finished, and is done with it.
func (l *Loop) learn() *reclaim {
	r := l.reclaim
	l.reclaim = nil
	switch {
	case r == nil || !r.finished():
		return r
	case l.undone.takes(r):
		return r // What it would have found nobody knows.
	case r.found():
		delete(l.barren, r.asked)
		return r
	case r.behind:
		return r // Another may have found it.
	}
	b := l.barren[r.asked]
	if b == nil || r.at.Sub(b.last) >= forgiven {
		b = &barren{}
		l.barren[r.asked] = b
	}
	b.times, b.last = b.times+1, r.at
	return r
}

// untried says whether something is to be reclaimed before a pod goes, though nothing was
// found lately; if so, it has that begun.
func (l *Loop) untried(ctx context.Context, m pressure.Met, layout threshold.Layout) bool {
	what := eviction.Reclaimable(m.Signal, layout)
	if l.reclaim != nil || l.undone.spent || what == (eviction.Reclaim{}) || l.barren[what] != nil && l.barren[what].times >= convincing {
		return false
	}
	l.begin(ctx, m, what)
	return true
}
