package collector

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// diskTime is how long a filesystem is waited for that is measured for the signals.
const diskTime = 500 * time.Millisecond

// answers asks something of filesystems, of which one may not answer (a dead network
// mount): nobody waits for longer than diskTime, and nothing more is asked until it comes
// back. The zero value has asked nothing. Safe for concurrent use.
type answers[T any] struct {
	mu sync.Mutex
	// asking is nil while nothing is.
	asking *asking[T]
	// last is what was answered last.
	last T
	// told: that there is no answer.
	told bool
}

type asking[T any] struct {
	done chan struct{} // closed when answer is set
	// answer is set before.
	answer T
}

// get asks, or waits for the answer to a question before. Not answered: it is the last
// answer that there was.
func (a *answers[T]) get(ctx context.Context, path string, ask func() T) (answer T, answered bool) {
	a.mu.Lock()
	q := a.asking
	if q == nil {
		q = &asking[T]{done: make(chan struct{})}
		a.asking = q
		go func() {
			q.answer = ask()
			a.mu.Lock()
			defer a.mu.Unlock()
			a.last, a.asking, a.told = q.answer, nil, false
			close(q.done)
		}()
	}
	a.mu.Unlock()
	timer := time.NewTimer(diskTime)
	defer timer.Stop()
	select {
	case <-q.done:
		return q.answer, true
	case <-ctx.Done():
	case <-timer.C:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.told && ctx.Err() == nil {
		a.told = true
		klog.FromContext(ctx).Info("A filesystem does not answer, and nobody knows what is left there until it does; look at the mount", "path", path)
	}
	return a.last, false
}
