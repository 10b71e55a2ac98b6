// Package wake lets one goroutine wake another that waits for work.
//
// It owns the signal that is never lost and never piles up: whoever sets it does
// not wait, and who waits is woken once for all that was set meanwhile. It must
// never carry what happened: who is woken looks for itself.
package wake

import (
	"context"
	"time"

	"github.com/polylet/polylet/internal/backoff"
)

// Signal is set by anybody and received by one; make it with New. Receive from it
// like from any channel.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes who waits, or who waits next. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait returns when the signal is set or ctx is done, and if again is true not
// later than retry says; else retry begins anew.
func (s Signal) Wait(ctx context.Context, retry *backoff.Backoff, again bool) {
	var later <-chan time.Time
	if again {
		later = time.After(retry.Next())
	} else {
		retry.Reset()
	}
	select {
	case <-ctx.Done():
	case <-s:
	case <-later:
	}
}
