package volume

import (
	"context"
	"sync"
)

// lanes are places for those who wait for somebody who may not answer, so many for each of
// these: whoever waits for one takes no place of another's. The zero value is ready; safe for
// concurrent use.
type lanes struct {
	mu sync.Mutex
	of map[string]chan struct{}
}

// enter waits for one of so many places with somebody, until ctx is done.
func (l *lanes) enter(ctx context.Context, whose string, most int) (leave func(), err error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = map[string]chan struct{}{}
	}
	places := l.of[whose]
	if places == nil {
		places = make(chan struct{}, most)
		l.of[whose] = places
	}
	l.mu.Unlock()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
