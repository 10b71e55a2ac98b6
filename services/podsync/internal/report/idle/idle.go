// Package idle lets what nobody waits for stand back while something runs that
// somebody waits for: an event that tells of a start takes CPU time from the
// start on a node that is busy with it.
//
// It owns the count of what is under way; it must never hold anything up for
// longer than it was told.
package idle

import (
	"context"
	"sync"
	"time"
)

// settle is how long nothing must have been under way: a pod's start has steps
// with gaps of a few milliseconds between them.
const settle = 25 * time.Millisecond

// Gate counts what is under way. Safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	busy    int
	since   time.Time     // when busy last fell to zero
	changed chan struct{} // closed when busy leaves zero or falls to it
}

// New returns a Gate of a node that does nothing.
func New() *Gate { return &Gate{changed: make(chan struct{})} }

// Begin says that something is under way that somebody waits for, until end is
// called, which may be done more than once.
func (g *Gate) Begin() (end func()) {
	g.add(1)
	return sync.OnceFunc(func() { g.add(-1) })
}

func (g *Gate) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.busy
	g.busy += n
	if g.busy == 0 {
		g.since = time.Now()
	}
	if before == 0 || g.busy == 0 {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// WaitIdle waits until nothing has been under way for a moment that began no sooner
// than since, until the time is up, or until ctx is done.
func (g *Gate) WaitIdle(ctx context.Context, since, until time.Time) {
	for ctx.Err() == nil {
		g.mu.Lock()
		busy, from, changed := g.busy > 0, g.since, g.changed
		g.mu.Unlock()
		wait := time.Until(until)
		if !busy {
			if from.Before(since) {
				from = since
			}
			wait = min(wait, time.Until(from.Add(settle)))
		}
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
