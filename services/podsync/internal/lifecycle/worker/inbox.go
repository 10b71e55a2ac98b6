package worker

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// inbox is where a worker and all others meet: what it was told and has not looked at
// yet, and what it shows of itself. It has a lock of its own, under which nothing is
// called. Safe for concurrent use.
type inbox struct {
	// wake has something when there is something to look at.
	wake wake.Signal

	mu   sync.Mutex
	told told
	// waits is what the pod waits for.
	waits []podstate.Wait
}

// told is what a worker was told; the newest of each wins.
type told struct {
	pod      *v1.Pod
	source   string // of pod
	removed  bool
	returns  *bool // it is wanted anew when it has ended
	observed *podstate.Observed
	probes   map[podstate.ProbeKey]podstate.ProbeResult
	hooks    map[string]podstate.Hook
	done     []outcome
	stop     *podstate.Stop
	stopKept bool // stop was kept by a previous run
	objects  bool
	excess   *map[string]bool
	reclaims []reclaim
}

func newInbox() *inbox { return &inbox{wake: wake.New()} }

// tell puts something in; it never blocks.
func (b *inbox) tell(put func(*told)) {
	b.mu.Lock()
	put(&b.told)
	b.mu.Unlock()
	b.ring()
}

// ring lets the worker plan anew though nothing was told.
func (b *inbox) ring() {
	b.wake.Set()
}

// take empties it.
func (b *inbox) take() told {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.told
	b.told = told{}
	return out
}

// show sets what the pod waits for.
func (b *inbox) show(waits []podstate.Wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = waits
}

// shown is what the pod waits for.
func (b *inbox) shown() []podstate.Wait {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.waits)
}
