package volume

import (
	"context"
	"sync"
	"time"

	"github.com/polylet/polylet/internal/backoff"
)

// attempts say of each volume of a pod that could not be taken down when it is tried again, from
// one Teardown to the next: one that has failed for long keeps none back that has just failed.
// The zero value has none.
type attempts struct {
	mu sync.Mutex
	of map[string]*retry
}

// retry is one volume's. Only who takes the pod's volumes down uses it.
type retry struct {
	delay *backoff.Backoff
	// err is why it failed last, due when it is tried again, soon from when on it goes along
	// with others that are, and sooner is closed when it may work before that.
	err    error
	due    time.Time
	soon   time.Time
	sooner <-chan struct{}
}

// get is that of a volume.
func (r *attempts) get(l *leaving) *retry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]*retry{}
	}
	if r.of[l.key] == nil {
		r.of[l.key] = &retry{delay: backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 2 * time.Minute, Jitter: .1})}
	}
	return r.of[l.key]
}

// forget is for volumes that are wanted once more.
func (r *attempts) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.of)
}

// try takes the volume down, and says how long that took.
func (r *retry) try(ctx context.Context, l *leaving, places *lanes, came func() <-chan struct{}) (took time.Duration) {
	r.sooner = came()
	if took, r.err = l.try(ctx, places); r.err == nil {
		r.delay.Reset()
		return took
	}
	if ctx.Err() != nil {
		r.due = time.Now() // It was cut off, and may never have begun.
		r.soon = r.due
		return took
	}
	delay := r.delay.Next()
	r.due = time.Now().Add(delay)
	r.soon = r.due.Add(-delay / 5) // Those that have failed together differ by no more.
	return took
}

// waits says whether its time has not come yet, nor is near.
func (r *retry) waits() bool {
	if r.err == nil || !time.Now().Before(r.soon) {
		return false
	}
	select {
	case <-r.sooner:
		return false
	default:
		return true
	}
}
