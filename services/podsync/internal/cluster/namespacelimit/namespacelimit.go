// Package namespacelimit bounds how much is under way for one namespace of what all pods
// share: calls to the apiserver, which have one rate there, and plugins that give
// credentials. Pods that name thousands of objects, tokens or images would keep what
// is to be written about other pods waiting until it is too late.
//
// It owns who may go next. It must never make a call itself, nor let one namespace
// wait for another.
package namespacelimit

import (
	"context"
	"sync"
)

// Most is how many calls, or runs, of one kind are under way for a namespace.
const Most = 8

// Pool bounds them by namespace. The zero value is ready; safe for concurrent use.
type Pool struct {
	mu sync.Mutex
	of map[string]*slot
}

type slot struct {
	free  chan struct{}
	users int // who holds one or waits
}

// Acquire waits for a slot and returns what gives it back; the error is ctx's.
func (p *Pool) Acquire(ctx context.Context, namespace string) (release func(), err error) {
	p.mu.Lock()
	if p.of == nil {
		p.of = map[string]*slot{}
	}
	one := p.of[namespace]
	if one == nil {
		one = &slot{free: make(chan struct{}, Most)}
		p.of[namespace] = one
	}
	one.users++
	p.mu.Unlock()
	left := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(p.of, namespace)
		}
	}
	select {
	case one.free <- struct{}{}:
		return func() { <-one.free; left() }, nil
	case <-ctx.Done():
		left()
		return nil, context.Cause(ctx)
	}
}

// Namespaces is how many namespaces have calls under way or waiting.
func (p *Pool) Namespaces() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of)
}
