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

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/execute"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/stopping"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/conditions"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// Executor carries actions out; *execute.Executor has it.
type Executor interface {
	Do(life, ctx context.Context, t execute.Task) (execute.Result, error)
	LogCounts(pod *v1.Pod) map[string]int
}

// Status sends statuses to the apiserver; *status.Writer has it.
type Status interface {
	Set(pod *v1.Pod, st v1.PodStatus)
	Forget(uid types.UID)
}

// Probes is told which probes should run, and tells what they said; *probe.Board has it.
type Probes interface {
	Set(pod *v1.Pod, targets []podstate.Target)
	Remove(uid types.UID)
	// Results are the last ones, also those of a previous run.
	Results(uid types.UID) map[podstate.ProbeKey]podstate.ProbeResult
}

// Standing keeps since when the conditions of static pods stand; *conditions.Keeper
// has it.
type Standing interface {
	Of(uid types.UID) []v1.PodCondition
	Set(uid types.UID, conditions []v1.PodCondition)
	Forget(uid types.UID)
	Prune(exists func(types.UID) bool)
}

// Ends is what the node decided to end; *stopping.Keeper has it.
type Ends interface {
	// Of is the decision of a previous run; nil when there is none.
	Of(uid types.UID) *podstate.Stop
	Forget(uid types.UID)
	Prune(exists func(types.UID) bool)
}

// Events records events on pods, containers and the node; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Container(pod *v1.Pod, container, eventType, reason, message string)
	// Node records an event on the node.
	Node(eventType, reason, message string)
}

// Mirrors is told what becomes of static pods; *mirror.Keeper has it. Its
// methods must not block and not call the Registry.
type Mirrors interface {
	// Orphan names a pod that runs though no source knows it.
	Orphan(uid types.UID)
	// AllKnown says that all those of a previous run were named.
	AllKnown()
	// Ended says that nothing of a pod runs any more.
	Ended(uid types.UID)
}

type noMirrors struct{}

func (noMirrors) Orphan(types.UID) {}
func (noMirrors) AllKnown()        {}
func (noMirrors) Ended(types.UID)  {}

// Pods shows the pods to others; *podcache.Pods has it.
type Pods interface {
	Set(pod podcache.Pod)
	Remove(uid types.UID)
}

// Config of a Registry.
type Config struct {
	// Sources are the names of all sources; pods that no source knows are
	// ended only when each of them has been heard.
	Sources []string
	// AdmitAgain is how often admission that could not decide is asked again,
	// beside each change of the node; 1 s when zero.
	AdmitAgain time.Duration
	// MaxDead is how many dead containers stay on the node; nil for no bound.
	MaxDead *int
}

// Node is what of the node a pod's status needs, as the planner has it.
type Node = plan.Node

// Deps are what a Registry is given; all but Mirrors, Standing, Ends, Unmet,
// OnDisk, AllKnown and InDoubt must be set.
type Deps struct {
	Executor Executor
	Status   Status
	Probes   Probes
	Events   Events
	Pods     Pods
	Mirrors  Mirrors
	// Standing may be nil: the conditions of static pods then stand since the
	// start of this process.
	Standing Standing
	// Ends may be nil: a crash then loses that the node ends a pod.
	Ends Ends
	// Metrics may be nil.
	Metrics *Metrics
	// Timelines may be nil; then the Registry makes its own.
	Timelines *timeline.Book
	// Admit decides; it must not block and not call the Registry.
	Admit func(Question) Answer
	// Unmet names the features that an update of a pod needs and that this node
	// does not have; nil asks nobody. It must not block and not call the Registry.
	Unmet func(old, now *v1.Pod) ([]string, error)
	// Resize decides on a resize: nil when it can be allocated. It must not
	// block and not call the Registry.
	Resize func(ResizeQuestion) *podstate.ResizePending
	// Allocations is what pods were allocated in previous runs; nil for nothing.
	Allocations Allocations
	// Node is what of the node matters to a status; it must not block.
	Node func() Node
	// OnDisk lists pods that left something on the disk or in cgroups.
	OnDisk func(ctx context.Context) []types.UID
	// AllKnown is told once that all pods are known that go on from an earlier
	// life of this process, with what says whether one is; may be nil. It must
	// not block and not call the Registry.
	AllKnown func(exists func(types.UID) bool)
	// InDoubt is told which static pods go on, and are not looked after, because a
	// manifest cannot be read that may be theirs, each time that changes; may be nil.
	// It must not block and not call the Registry.
	InDoubt func(pods []string)
}

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
	seen   bool // the runtime was seen as a whole
	all    time.Time
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
	if deps.Standing == nil {
		deps.Standing = conditions.New(conditions.Deps{})
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
		w.goOnEndingLocked()
		r.startLocked(w)
		return
	case w.pod == nil || w.gone:
		// It is being ended; it begins anew when that is done.
		w.again, w.againSource = pod, src
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
	r.settleLocked(nil, triggerNode)
	for _, w := range r.pods {
		w.inbox.ring()
	}
}

// sweep ends what no source knows, once all sources and the runtime were
// heard: until then such a pod may yet turn out to be wanted.
func (r *Registry) sweep() {
	r.mu.Lock()
	for _, src := range r.cfg.Sources {
		if !r.ready[src] {
			r.mu.Unlock()
			return
		}
	}
	if r.all.IsZero() {
		r.all = time.Now()
	}
	if !r.seen || r.life == nil || r.closed || r.sweeping {
		r.mu.Unlock()
		return
	}
	r.sweeping = true
	known := func(uid types.UID) bool { return r.pods[uid] != nil || r.doubtedLocked(uid) }
	r.deps.Allocations.Prune(known)
	r.deps.Ends.Prune(known)
	r.deps.Standing.Prune(known)
	if r.deps.AllKnown != nil {
		r.deps.AllKnown(known)
	}
	pods, life := len(r.pods), r.life
	for uid := range r.observed {
		if r.pods[uid] == nil {
			r.unknownLocked(uid)
		}
	}
	r.deps.Mirrors.AllKnown()
	r.sayDoubtedLocked()
	logr.FromContextOrDiscard(life).Info("All sources and the runtime were seen", "pods", pods, "podsThatNoSourceKnows", len(r.pods)-pods)
	if r.deps.OnDisk != nil {
		r.running.Go(func() { r.sweepDisk(life) })
	}
	r.mu.Unlock()
}

// sweepDisk ends pods of which only files or cgroups are left.
func (r *Registry) sweepDisk(life context.Context) {
	disk := r.deps.OnDisk(life)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range disk {
		if r.pods[uid] == nil && !r.doubtedLocked(uid) {
			r.orphanLocked(uid)
		}
	}
}

// orphanLocked makes a worker that ends a pod no source knows.
func (r *Registry) orphanLocked(uid types.UID) {
	r.deps.Metrics.orphaned()
	r.deps.Mirrors.Orphan(uid)
	r.startLocked(r.addLocked(uid))
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
