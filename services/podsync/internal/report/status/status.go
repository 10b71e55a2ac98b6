// Package status owns what the apiserver is told about pods: one PATCH per
// change, at once, newest wins, and the DELETE that ends a pod. It must never
// compute a status, and never touch what others write into it.
package status

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
)

// Config of a Writer.
type Config struct {
	// Workers is how many requests run at once; 8 when zero.
	Workers int
	// RequestTimeout bounds one request; 10 s when zero.
	RequestTimeout time.Duration
	// MinorDelay is how long a change that nobody can act on, such as a first
	// Pending, waits for what follows it; 250 ms when zero, none when negative.
	// A change between the first Pending and the start waits four times as long.
	MinorDelay time.Duration
}

// Mirrors finds the mirror pod of a static pod.
type Mirrors interface {
	// Mirror returns the mirror of the static pod with this UID; false while there is none.
	Mirror(static types.UID) (*v1.Pod, bool)
}

// Deps is what a Writer is given.
type Deps struct {
	// Client is nil when there is no apiserver: statuses stay on the node.
	Client kubernetes.Interface
	// Mirrors may be nil: the status of static pods stays on the node.
	Mirrors Mirrors
	// Health may be nil; "apiserver" is reported.
	Health health.Reporter
	// OnRefused is told when a request for a pod failed for another reason than
	// before; may be nil, must not block. It is called without a lock held.
	OnRefused func(uid types.UID, err error)
	// OnWithheld is told of a part of a status that the apiserver refuses for
	// good: the rest is written without it. May be nil, must not block. It is
	// called without a lock held.
	OnWithheld func(pod *v1.Pod, r Refusal)
	// Trace opens the span of one request for a pod and returns what ends it; nil
	// when nobody collects traces. It must not block.
	Trace func(uid types.UID) (end func(error))
	// Sending is told when a request begins, and sent when it has ended; may be
	// nil, must not block.
	Sending func() (sent func())
	// Metrics may be nil.
	Metrics *metrics.Metrics
}

// Writer sends statuses. Safe for concurrent use, before Run too.
type Writer struct {
	cfg  Config
	deps Deps

	mu      sync.Mutex
	ctx     context.Context // set while Run runs; nil: nothing is sent
	entries map[types.UID]*entry
	queues  [queues][]*entry
	running int
	idle    sync.WaitGroup
	away    bool // the last request failed as if the apiserver were away
}

// The queues, those that are emptied first in front.
const (
	ends   = iota // of pods
	news          // that a client may act on
	minors        // what nobody can act on
	queues        // how many there are
)

// entry is one pod. Guarded by Writer.mu, except obj, which is never changed.
type entry struct {
	uid     types.UID
	obj     *v1.Pod // newest object of the source
	desired v1.PodStatus
	// refused are the parts of desired that the apiserver does not take; see owed.
	refused []refusal
	// version counts desired; accepted is the version of it that the apiserver has.
	version, accepted uint64
	// known is what the apiserver has, normalized, as of the resource version rv.
	known    v1.PodStatus
	rv       string
	knownOf  types.UID // the object that known is of; empty when nothing is known
	seen     string    // the resource version of the newest object that came from its source
	seenOf   types.UID // the object that seen is of
	gone     types.UID // the object that is said to be gone
	busy     bool      // a request runs
	queued   bool
	queue    int  // where, when queued
	urgent   bool // Finish waits
	timer    *time.Timer
	due      time.Time // when the timer fires
	retrying bool      // the timer is that of a retry
	tries    int       // requests for this version that failed or did not last
	waiters  []chan struct{}
	// failure is why the last request failed, nil when it did not; failing since.
	failure error
	failing time.Time
	retryAt time.Time
	// released is when it was last retried because another was written.
	released time.Time
	since    time.Time // when the status first differed from the accepted one
}

// New returns a Writer.
func New(cfg Config, deps Deps) *Writer {
	if cfg.Workers <= 0 {
		cfg.Workers = 8
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if cfg.MinorDelay == 0 {
		cfg.MinorDelay = 250 * time.Millisecond
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Sending == nil {
		deps.Sending = func() func() { return func() {} }
	}
	if deps.OnRefused == nil {
		deps.OnRefused = func(types.UID, error) {}
	}
	if deps.OnWithheld == nil {
		deps.OnWithheld = func(*v1.Pod, Refusal) {}
	}
	if deps.Trace == nil {
		deps.Trace = func(types.UID) func(error) { return func(error) {} }
	}
	return &Writer{cfg: cfg, deps: deps, entries: map[types.UID]*entry{}}
}

// Run sends until ctx is done, and returns when the last request has ended.
func (w *Writer) Run(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for _, e := range w.entries {
		w.lookLocked(e)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	for _, e := range w.entries {
		e.stopTimer()
	}
	w.mu.Unlock()
	w.idle.Wait()
	return nil
}

// Set says which status the pod has now. pod is the newest object that its
// source gave; its status is what the apiserver is known to have. Cheap when
// nothing changed.
func (w *Writer) Set(pod *v1.Pod, st v1.PodStatus) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[pod.UID]
	if e == nil {
		e = &entry{uid: pod.UID}
		w.entries[pod.UID] = e
	}
	e.obj = pod
	var object v1.PodStatus
	if target, ok := w.target(e); ok {
		w.learnLocked(e, target)
		object = target.Status
	}
	next := normalize(st, object)
	stamp(&next, e.known, now)
	if e.version == 0 || !same(next, e.desired) || !same(e.desired, next) {
		if e.version > 0 {
			stamp(&next, e.desired, now)
		}
		if e.accepted == e.version {
			e.since = now
		}
		e.desired = next
		e.version++
		e.tries = 0
	}
	w.lookLocked(e)
}

// Get returns the status that was set last, with its transition times.
func (w *Writer) Get(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	if e == nil || e.version == 0 {
		return v1.PodStatus{}, false
	}
	return *e.desired.DeepCopy(), true
}

// Forget drops all that is kept of a pod whose object is gone.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	if e == nil {
		return
	}
	e.gone = e.uid
	e.stopTimer()
	e.wake()
	delete(w.entries, uid)
}

// Touch looks at a static pod again: its mirror has changed.
func (w *Writer) Touch(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	if e == nil || e.version == 0 {
		return
	}
	if target, ok := w.target(e); ok {
		w.learnLocked(e, target)
		stamp(&e.desired, e.known, time.Now())
	}
	w.lookLocked(e)
}
