// Package turn gives turns at things that are changed by more than one call: a file
// that is read, changed and written, above all. A mutex held meanwhile would let
// everybody wait for one slow disk.
//
// It owns who is next at one thing. It must never let one thing wait for another.
package turn

import (
	"context"
	"sync"
)

// Turns are turns at things by name. The zero value is ready; safe for concurrent use.
type Turns struct {
	mu sync.Mutex
	of map[string]*place
}

type place struct {
	taken chan struct{}
	users int // who has the turn or waits for it
}

// Take waits for the turn at a thing, and returns what ends it.
func (t *Turns) Take(name string) (done func()) {
	done, _ = t.TakeWithin(context.Background(), name)
	return done
}

// TakeWithin is Take until ctx is done; the error is ctx's.
func (t *Turns) TakeWithin(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]*place{}
	}
	p := t.of[name]
	if p == nil {
		p = &place{taken: make(chan struct{}, 1)}
		t.of[name] = p
	}
	p.users++
	t.mu.Unlock()
	left := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(t.of, name)
		}
	}
	select {
	case p.taken <- struct{}{}:
		return func() { <-p.taken; left() }, nil
	case <-ctx.Done():
		left()
		return nil, context.Cause(ctx)
	}
}
