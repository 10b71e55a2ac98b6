package evict

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

var errMemory = errors.New("memory is short, too, and that does not wait for disks to be measured")

// untilMemory is ctx until memory is short that was not when due was: pods decide how long
// it takes to measure disks. done ends that. Who is short of it for a moment again and again
// does not keep disks from being measured.
func (l *Loop) untilMemory(parent context.Context, due []pressure.Met) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	if short(pressure.Judgement{Due: due}, pressure.Memory) || time.Since(l.interrupted) < interval {
		return ctx, func() { cancel(nil) }
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.deps.Moved:
			}
			l.tell.Set()
			l.answered.Set() // The loop has not heard of it.
			if now, _, known := l.deps.Judge.Judge(time.Now()); known && short(now, pressure.Memory) {
				cancel(errMemory)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}
