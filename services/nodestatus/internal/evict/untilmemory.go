package evict

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

var errMemory = errors.New("memory is short, too, and that does not wait for disks to be measured")

// untilMemory is ctx until memory is short and something is to be tried about it; where it
// was short when due was, that is not before its turn: pods decide how long it takes to
// measure disks. done ends that. Who is short of it for a moment again and again, or where
// nobody can be evicted for it, does not keep disks from being measured.
func (l *Loop) untilMemory(parent context.Context, due []pressure.Met) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	if time.Since(l.interrupted) < interval {
		return ctx, func() { cancel(nil) }
	}
	next := maps.Clone(l.next)
	turn := time.NewTimer(memoryTurn(due, next))
	var watching sync.WaitGroup
	watching.Go(func() {
		defer turn.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-turn.C:
			case <-l.deps.Moved:
			}
			l.tell.Set()
			l.answered.Set() // The loop has not heard of it.
			now := time.Now()
			if j, _, known := l.deps.Judge.Judge(now); known && memoryDue(j.Due, next, now) {
				cancel(errMemory)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}

// memoryDue says whether memory is short and it is time to try something about it.
func memoryDue(due []pressure.Met, next map[string]time.Time, now time.Time) bool {
	return slices.ContainsFunc(due, func(m pressure.Met) bool {
		return pressure.KindOf(m.Signal) == pressure.Memory && !now.Before(next[m.Signal])
	})
}

// memoryTurn is how long it is until then of memory that is short; long where it is not.
func memoryTurn(due []pressure.Met, next map[string]time.Time) time.Duration {
	out := interval
	for _, m := range due {
		if pressure.KindOf(m.Signal) == pressure.Memory {
			out = min(out, time.Until(next[m.Signal]))
		}
	}
	return max(out, 0)
}
