package inflight

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// places are those of a class. One may have up to mostOfOne of them while there is nobody
// else, and the fewer the more others have: always so many times what is free. The last
// ones are for those who have none: each of so many gets one, whoever took all that they
// may before. Safe for concurrent use.
type places struct {
	atOnce, mostOfOne int

	mu      sync.Mutex
	taken   int
	of      map[string]int // by whose they are
	waiting list.List      // of *waiter, oldest first
}

// waiter is a request that waits for a place.
type waiter struct {
	whose string
	// ready is closed when it has one.
	ready chan struct{}
}

func newPlaces(atOnce, mostOfOne int) *places {
	return &places{atOnce: atOnce, mostOfOne: mostOfOne, of: map[string]int{}}
}

// enter takes a place, for which it waits at most so long, or is false. leave gives it back.
func (p *places) enter(ctx context.Context, whose string, wait time.Duration) bool {
	p.mu.Lock()
	if p.roomLocked(whose) {
		p.takeLocked(whose)
		p.mu.Unlock()
		return true
	}
	if wait == 0 {
		p.mu.Unlock()
		return false
	}
	w := &waiter{whose: whose, ready: make(chan struct{})}
	at := p.waiting.PushBack(w)
	p.mu.Unlock()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-w.ready:
		return true
	case <-timeout.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.ready: // just now
		return true
	default:
	}
	p.waiting.Remove(at)
	return false
}

// leave gives a place back, to who waits and has the fewest, and of those to the first.
func (p *places) leave(whose string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if whose != "" {
		if p.of[whose]--; p.of[whose] == 0 {
			delete(p.of, whose)
		}
	}
	for {
		at, w := p.nextLocked()
		if at == nil {
			return
		}
		p.takeLocked(w.whose)
		p.waiting.Remove(at)
		close(w.ready)
	}
}

// nextLocked is who gets the next place; nil where nobody may have one.
func (p *places) nextLocked() (next *list.Element, waits *waiter) {
	for at := p.waiting.Front(); at != nil && p.taken < p.atOnce; at = at.Next() {
		w, ok := at.Value.(*waiter)
		if ok && p.roomLocked(w.whose) && (next == nil || p.of[w.whose] < p.of[waits.whose]) {
			next, waits = at, w
		}
	}
	return next, waits
}

// has is how many places are somebody's.
func (p *places) has(whose string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[whose]
}

// lastOnes is which part of the places only those get who have none.
const lastOnes = 8

func (p *places) roomLocked(whose string) bool {
	free := p.atOnce - p.taken
	if whose == "" {
		return free > 0
	}
	if p.of[whose] > 0 && free <= p.atOnce/lastOnes {
		return false
	}
	return p.of[whose]*(p.atOnce-p.mostOfOne) < free*p.mostOfOne
}

func (p *places) takeLocked(whose string) {
	p.taken++
	if whose != "" {
		p.of[whose]++
	}
}
