package evict

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/wake"
)

// ends follows which pods have ended, as long as somebody waits for one. Its methods
// belong to one goroutine; what is followed wakes that.
type ends struct {
	podsync Podsync
	heard   wake.Signal
	stop    func() // nil while nothing is followed

	mu sync.Mutex
	// ended says so of each pod that podsync knows; nil: it has not said.
	ended map[types.UID]bool
}

func newEnds(podsync Podsync) *ends { return &ends{podsync: podsync, heard: wake.New()} }

// follow begins to, or ends it.
func (e *ends) follow(parent context.Context, wanted bool) {
	switch {
	case wanted && e.stop == nil:
		ctx, cancel := context.WithCancel(parent)
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.run(ctx)
		}()
		e.stop = func() {
			cancel()
			<-done
			e.set(nil)
		}
	case !wanted && e.stop != nil:
		e.stop()
		e.stop = nil
	}
}

func (e *ends) run(ctx context.Context) {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.2})
	for {
		_ = e.podsync.FollowEnds(ctx, func(ended map[types.UID]bool) { // That podsync is away is told elsewhere.
			retry.Reset()
			e.set(maps.Clone(ended))
			e.heard.Set()
		})
		e.set(nil)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

func (e *ends) set(ended map[types.UID]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = ended
}

// of says whether a pod has ended; missing: podsync does not know it, which has
// forgotten it or was just started.
func (e *ends) of(uid types.UID) (ended, missing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended, known := e.ended[uid]
	return ended, e.ended != nil && !known
}
