// Package ctxclock is a clock whose waits end with a context. client-go's
// reflector waits its back-off out without looking at its context when a
// watch-list is refused (429, 500, no connection); with this clock it does not.
//
// It owns that one wait; everything else is the real clock's, and it must never
// tell another time.
package ctxclock

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the real clock until its context ends. Safe for concurrent use.
type Clock struct {
	clock.RealClock
	ctx context.Context
}

// New returns a Clock for what works until ctx is done.
func New(ctx context.Context) Clock { return Clock{ctx: ctx} }

// After is time.After that also fires, once, when the context ends.
func (c Clock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	fire := func() {
		select {
		case fired <- time.Now():
		default:
		}
	}
	registered := make(chan func() bool, 1)
	t := time.AfterFunc(d, func() {
		fire()
		(<-registered)() // the context has nothing to tell any more
	})
	registered <- context.AfterFunc(c.ctx, func() {
		t.Stop()
		fire()
	})
	return fired
}
