// Package worker gives each pod a goroutine of its own: it holds what is wanted
// of the pod, what runs, what probes say and what was tried, asks the planner
// at each change, starts what the planner wants done, and publishes what the
// planner says. A Registry keeps the workers, takes in what the sources and the
// observer tell, and finds the pods that run though no source knows them.
//
// It owns when the planner is asked and that one action of a key runs at a
// time. It must never decide what is done with a pod, never call the runtime,
// and never let one pod wait for another.
package worker

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/evictions"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/stopping"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/conditions"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// Registry keeps what is held of each pod and lets its worker work. It implements source.Sink and
// observe.Sink. Safe for concurrent use.
type Registry struct {
	cfg  Config
	deps Deps

	mu       sync.Mutex
	life     context.Context // nil before Run
	seq      uint64
	pods     map[types.UID]*held
	observed map[types.UID]podstate.Observed
	// ended holds pods whose worker is done and whose source has not said yet
	// that they are gone.
	ended map[types.UID]remains
	ready map[string]bool
	// doubts holds the sources of which something could not be read, and inDoubt what
	// was told of last.
	doubts  map[string]bool
	inDoubt []string
	// excess is what the workers were told last of it; see plan.State.
	excess map[types.UID]map[string]bool
	// evictions are those that put off the start of others.
	evictions evictions.Cache
	seen      bool // the runtime was seen as a whole
	all       time.Time
	// sweeping is true from the moment that all is known on.
	sweeping bool
	closed   bool

	// begin lets a worker work; a test looks at what it begins with.
	begin   func(*held)
	running sync.WaitGroup
}

// New returns a Registry without pods.
func New(cfg Config, deps Deps) *Registry {
	if cfg.AdmitAgain <= 0 {
		cfg.AdmitAgain = time.Second
	}
	if deps.Mirrors == nil {
		deps.Mirrors = noMirrors{}
	}
	if deps.Conditions == nil {
		deps.Conditions = conditions.New(conditions.Deps{})
	}
	if deps.Ends == nil {
		deps.Ends = stopping.New(stopping.Deps{})
	}
	if deps.Allocations == nil {
		deps.Allocations = (*allocation.Store)(nil)
	}
	if deps.Timelines == nil {
		deps.Timelines = timeline.NewBook()
	}
	r := &Registry{
		cfg: cfg, deps: deps,
		pods:     map[types.UID]*held{},
		observed: map[types.UID]podstate.Observed{},
		ended:    map[types.UID]remains{},
		ready:    map[string]bool{},
		doubts:   map[string]bool{},
	}
	r.begin = func(w *held) {
		life := r.life
		r.running.Go(func() { w.run(life) })
	}
	return r
}

// Run lets the workers work until ctx is done, and returns when all of them and
// their actions have returned. What it was told before is not lost.
func (r *Registry) Run(ctx context.Context) error {
	r.mu.Lock()
	r.life = ctx
	for _, w := range r.pods {
		r.startLocked(w)
	}
	r.mu.Unlock()
	r.sweep()
	<-ctx.Done()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
	return nil
}

// startLocked lets a worker work.
func (r *Registry) startLocked(w *held) {
	if r.life == nil || r.closed || w.working {
		return
	}
	w.working = true
	r.begin(w)
}

// Set implements source.Sink.
func (r *Registry) Set(pod *v1.Pod, src string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.sayDoubtedLocked()
	r.evictedLocked(pod, &pod.Status, false)
	if left, ended := r.ended[pod.UID]; ended {
		if pod.DeletionTimestamp != nil {
			r.ended[pod.UID] = remains{pod, left.since} // of a pod that we have ended ourselves
			return
		}
		delete(r.ended, pod.UID)
	}
	w := r.pods[pod.UID]
	switch {
	case w == nil:
		w = r.addLocked(pod.UID)
		w.pod, w.source = pod, src
		r.holdLocked(w)
		w.givePod(pod) // before it works: without a pod it would begin to end one
		// Before all are said to be known: what is shown then is taken for all.
		r.deps.Pods.Set(podcache.Pod{Pod: pod, Status: pod.Status, Static: src != apiSource})
		w.goOnEndingLocked()
		r.startLocked(w)
		return
	case w.pod == nil || w.gone:
		// It is being ended; it begins anew when that is done.
		w.again, w.againSource = pod, src
		w.returnsLocked()
		return
	default:
		w.pod = pod
		w.leavesLocked()
		if podutil.TerminalPhase(pod.Status.Phase) {
			r.deps.Ends.Forget(pod.UID) // the apiserver knows
		}
		w.regrantLocked()
		if w.preempted && w.stopped {
			r.askAgainLocked() // whoever needs its room may have waited for this
		}
	}
	w.givePod(pod)
}

// Remove implements source.Sink.
func (r *Registry) Remove(uid types.UID, src string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ended, uid)
	w := r.pods[uid]
	switch {
	case w == nil:
		return
	case w.again != nil && w.againSource == src:
		w.again = nil // it is being ended, and does not come back
		w.returnsLocked()
		return
	case w.again != nil || w.source != src:
		return
	}
	w.gone = true
	w.leavesLocked()
	w.inbox.tell(func(in *told) { in.removed = true })
}

// Ready implements source.Sink.
func (r *Registry) Ready(src string) {
	r.mu.Lock()
	r.ready[src] = true
	r.holdAgainLocked()
	r.mu.Unlock()
	r.sweep()
}

// SourcesReady is when all sources had been heard; zero before.
func (r *Registry) SourcesReady() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Observe implements observe.Sink.
func (r *Registry) Observe(uid types.UID, o podstate.Observed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	empty := len(o.Sandboxes) == 0 && len(o.Containers) == 0
	if empty && o.Known {
		delete(r.observed, uid)
	} else {
		r.observed[uid] = o
	}
	if w := r.pods[uid]; w != nil {
		w.inbox.tell(func(in *told) { in.observed = &o })
	} else if r.sweeping {
		r.unknownLocked(uid)
	}
	if o.StaticOf != "" {
		r.holdAgainLocked()
	}
	r.thinLocked()
	r.sayDoubtedLocked()
}

// RuntimeSeen implements observe.Sink.
func (r *Registry) RuntimeSeen() {
	r.mu.Lock()
	r.seen = true
	for uid, w := range r.pods {
		o := r.currentLocked(uid)
		w.inbox.tell(func(in *told) { in.observed = &o })
	}
	r.mu.Unlock()
	r.sweep()
}

// RuntimeChanged implements observe.Sink.
func (r *Registry) RuntimeChanged(observe.Runtime) { r.Recheck() }

// currentLocked is what is known of a pod in the runtime.
func (r *Registry) currentLocked(uid types.UID) podstate.Observed {
	if o, ok := r.observed[uid]; ok {
		return o
	}
	return podstate.Observed{Known: r.seen}
}

// Recheck makes every worker plan anew: something of the node has changed.
func (r *Registry) Recheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shortLocked()
	r.settleLocked(nil, triggerNode)
	for _, w := range r.pods {
		w.inbox.ring()
	}
}

// addLocked makes a pod's worker.
func (r *Registry) addLocked(uid types.UID) *held {
	r.seq++
	w, _ := newHeld(r, uid, r.seq)
	r.pods[uid] = w
	o := r.currentLocked(uid)
	ids, some := r.excess[uid]
	w.inbox.tell(func(in *told) {
		if in.observed = &o; some {
			in.excess = &ids
		}
	})
	return w
}
