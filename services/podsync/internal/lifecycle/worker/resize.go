package worker

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// Allocations is what resizes were allocated; *allocation.Store has it.
type Allocations interface {
	Get(uid types.UID) (allocation.Entry, bool)
	Lost(made time.Time) bool
	Forget(uid types.UID)
	Prune(exists func(types.UID) bool)
}

// ResizeQuestion is what the decision on a resize depends on.
type ResizeQuestion struct {
	// Pod is what is wanted, Allocated the same pod with what it has.
	Pod, Allocated *v1.Pod
	Static         bool
	// Active are the other admitted pods that have not ended, with what they are
	// allocated.
	Active []*v1.Pod
}

// resizeAgain is how often a resize that waits is tried again when nothing told
// that it may work.
const resizeAgain = 3 * time.Minute

// grant is what the Registry has decided of a pod's resources; it belongs to
// the Registry's lock.
type grant struct {
	// known is false until the pod is admitted.
	known      bool
	allocated  resize.Allocation
	generation int64
	// pod is the newest pod with what it is allocated.
	pod *v1.Pod
	// pending is why the newest spec is not allocated; nil when it is.
	pending *podstate.ResizePending
	since   time.Time
	// asked is the pod that pending is about.
	asked *v1.Pod
}

// allotLocked notes what a pod that is admitted has.
func (w *held) allotLocked(a resize.Allocation, generation int64) {
	w.grant = grant{known: true, allocated: a, generation: generation, pod: a.Apply(w.pod), since: w.pendingSince}
}

// regrantLocked keeps grant.pod at the newest pod.
func (w *held) regrantLocked() {
	if w.grant.known && w.pod != nil {
		w.grant.pod = w.grant.allocated.Apply(w.pod)
	}
}

// resizingLocked says whether the pod is to have something else than it has.
func (w *held) resizingLocked() bool {
	return w.grant.known && w.grant.pod != w.pod && w.admission == podstate.Admitted && !w.stopped && !w.gone &&
		w.pod != nil && w.pod.DeletionTimestamp == nil
}

// resizeState is what has been decided of a pod's resources.
func (r *Registry) resizeState(uid types.UID, again bool) grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	switch {
	case !w.resizingLocked():
		w.grant.pending, w.grant.asked, w.grant.since = nil, nil, time.Time{}
	case w.grant.asked != w.pod:
		r.settleLocked(w, triggerUpdated)
	case again:
		r.settleLocked(w, triggerPeriodic)
	}
	return w.grant
}

// settleLocked decides on all resizes that wait, in their order. One that is allocated
// and gives something back may make room for those before it, which are asked again
// then; one that gives nothing back cannot. asking knows by itself that it has been
// decided on; nil when nobody asks.
//
// Each decision looks at all pods, so it costs the square of their number when all of
// them want something else at once: about 5 ms for 110 pods and 0.1 s for 500, under the
// Registry's lock, whether they can be allocated or have to wait
// (BenchmarkResizesInABurst). So it is with the admission of pods that come at once.
func (r *Registry) settleLocked(asking *held, trigger string) {
	var waiting []*held
	for _, w := range r.pods {
		if w.resizingLocked() {
			waiting = append(waiting, w)
		}
	}
	resize.Sort(waiting, (*held).turnLocked)
	for i := 0; i < len(waiting); {
		w := waiting[i]
		pending := r.deps.Resize(ResizeQuestion{Pod: w.pod, Allocated: w.grant.pod, Static: w.source != apiSource, Active: r.activeLocked(w)})
		if pending != nil {
			if w.defersLocked(pending, w != asking) {
				r.deps.Metrics.pending(pending)
			}
			i++
			continue
		}
		frees := resize.Frees(w.pod, w.grant.pod)
		r.deps.Metrics.allocated(w.grant.pending, trigger)
		w.allotLocked(resize.Of(w.pod), w.pod.Generation)
		w.grant.since = time.Time{}
		if w != asking {
			w.inbox.ring()
		}
		waiting, trigger = slices.Delete(waiting, i, i+1), triggerResized
		if frees {
			i = 0
		}
	}
}

// defersLocked notes that a resize has to wait, or can never be, and says whether that
// is news.
func (w *held) defersLocked(pending *podstate.ResizePending, tell bool) bool {
	pending.Generation = w.pod.Generation
	if w.grant.since.IsZero() {
		w.grant.since = time.Now()
	}
	changed := w.grant.pending == nil || *w.grant.pending != *pending
	w.grant.pending, w.grant.asked = pending, w.pod
	if changed && tell {
		w.inbox.ring()
	}
	return changed
}

// turnLocked is what the pod's turn depends on.
func (w *held) turnLocked() resize.Waiting {
	return resize.Waiting{Desired: w.pod, Allocated: w.grant.pod, Since: w.grant.since}
}

// activeLocked are the other pods that others must reckon with, with what they are
// allocated.
func (r *Registry) activeLocked(w *held) []*v1.Pod {
	var pods []*v1.Pod
	for _, other := range r.pods {
		if other != w && other.pod != nil && !other.stopped && (other.countsLocked() || other.claiming) {
			pods = append(pods, other.allocatedLocked())
		}
	}
	return pods
}

// allocatedLocked is the pod with what it is allocated.
func (w *held) allocatedLocked() *v1.Pod {
	switch {
	case w.grant.known:
		return w.grant.pod
	case w.admission == podstate.AdmissionPending && !w.claiming: // of a previous run, not taken up yet
		a, _ := w.formerLocked()
		return a.Apply(w.pod)
	}
	return w.pod
}

// formerLocked is what a pod was allocated in a previous run: what is
// kept of it, or else what its sandbox was made with. Where the former was lost,
// or the sandbox is, its status says it. A pod of which nothing says it has what its
// spec asks for.
func (w *held) formerLocked() (a resize.Allocation, generation int64) {
	if e, ok := w.reg.deps.Allocations.Get(w.uid); ok {
		return e.Allocation, e.Generation
	}
	made, at, known := w.reg.allocatedBySandboxLocked(w.uid)
	if known && !w.reg.deps.Allocations.Lost(at) {
		return made, 0
	}
	if told, ok := resize.Shown(w.pod); ok {
		return told, 0
	}
	if known {
		return made, 0
	}
	return resize.Of(w.pod), 0
}

// allocatedBySandboxLocked is what the pod's newest sandbox was made for, and when; at
// no time where there is none.
func (r *Registry) allocatedBySandboxLocked(uid types.UID) (a resize.Allocation, made time.Time, known bool) {
	if o := r.currentLocked(uid); len(o.Sandboxes) > 0 {
		a, known = resize.Decode(o.Sandboxes[0].Allocated)
		return a, o.Sandboxes[0].CreatedAt, known
	}
	return resize.Allocation{}, time.Time{}, false
}

// allocatedBySandbox is the same.
func (r *Registry) allocatedBySandbox(uid types.UID) (a resize.Allocation, made time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allocatedBySandboxLocked(uid)
}

// resume takes up what a previous run had allocated, a. Whether
// that was carried out to its end, the status says that it had told.
func (w *worker) resume(a resize.Allocation) {
	made, at, known := w.reg.allocatedBySandbox(w.uid)
	e, resized := w.reg.deps.Allocations.Get(w.uid)
	switch {
	case resized:
		if w.stored = true; e.Generation > 0 { // else it is what the pod was admitted with
			w.state.Resize.Generation, w.state.Resize.At = e.Generation, e.At
		}
		w.state.Resize.Unfinished = !toldFinished(&w.state.Reported, e.Generation)
	case w.reg.deps.Allocations.Lost(at):
		// What has become of the resize that was lost is looked at, and what the
		// status says of it is kept anew.
		w.state.Pod = a.Apply(w.desired)
		w.state.Resize.Unfinished = plan.OutOfStep(w.state)
		if known {
			// It may be what the spec asks for again: then nothing is allocated anew,
			// and yet something else may run.
			a = made
			w.state.Pod = a.Apply(w.desired)
			w.state.Resize.Unfinished = w.state.Resize.Unfinished || plan.OutOfStep(w.state)
		}
	}
	w.keep(a)
}

// toldFinished says whether a status tells that the resize of this generation
// was in effect: it knows the generation, and neither has the resize under way
// nor waiting to be allocated.
func toldFinished(st *v1.PodStatus, generation int64) bool {
	_, under := conditionOf(st, v1.PodResizeInProgress)
	waits, pending := conditionOf(st, v1.PodResizePending)
	return st.ObservedGeneration >= generation && !under && (!pending || waits.ObservedGeneration > generation)
}

func conditionOf(st *v1.PodStatus, t v1.PodConditionType) (v1.PodCondition, bool) {
	if c := podutil.Condition(st.Conditions, t); c != nil {
		return *c, true
	}
	return v1.PodCondition{}, false
}

// waitedSince is when the pod's resize began to wait, as a previous run
//
//	has told; zero when it does not wait.
func waitedSince(st *v1.PodStatus) time.Time {
	c, _ := conditionOf(st, v1.PodResizePending)
	return c.LastTransitionTime.Time
}

// keep is that a pod has from now on what is on the disk as its allocation.
func (w *worker) keep(a resize.Allocation) {
	w.kept = &a
	w.state.Pod = a.Apply(w.desired)
}

// takeGrant puts what was decided of the pod's resources into the state.
func (w *worker) takeGrant() {
	if w.kept == nil || w.desired == nil {
		return
	}
	now := time.Now()
	g := w.reg.resizeState(w.uid, !w.askResize.IsZero() && !now.Before(w.askResize))
	w.state.Resize.Pending, w.state.Resize.Next, w.state.Resize.NextGeneration = g.pending, nil, 0
	if !g.allocated.Equal(*w.kept) {
		w.state.Resize.Next, w.state.Resize.NextGeneration = &g.allocated, g.generation
	}
	w.state.Resize.Unkept = nil
	if !w.stored && w.state.Resize.Next == nil && (g.pending != nil || w.saidByNothing()) {
		w.state.Resize.Unkept = w.kept
	}
	switch {
	case g.pending == nil:
		w.askResize = time.Time{}
	case w.askResize.IsZero() || !now.Before(w.askResize):
		w.askResize = now.Add(resizeAgain)
	}
}

// saidByNothing says whether the pod may come to ask for something else while
// there is no sandbox that says what it was admitted with.
func (w *worker) saidByNothing() bool {
	return !w.state.Static && len(w.state.Observed.Sandboxes) == 0 && w.kept.Asks()
}

// keepsFirst says whether what the pod has is just being kept for the first time,
// and nobody was told of its admission: a crash would leave a pod of which it is
// known that it was admitted, but not with what. Its sandbox, once it is there, says it
// too. Of one that ends nobody asks any more, and its object goes once its end was told.
func (w *worker) keepsFirst() bool {
	_, keeping := w.state.InFlight[podstate.Key{Kind: podstate.KeepAllocation}]
	return keeping && !w.stored && !w.begun && w.published == nil && w.saidByNothing()
}

// resizeActed notes what an action of a resize that went well has changed.
func (w *worker) resizeActed(a podstate.Action, at time.Time) {
	r := &w.state.Resize
	switch a.Kind {
	case podstate.KeepAllocation:
		w.stored = true
		if w.kept != nil && w.kept.Equal(*a.Allocation) {
			break // nothing of it changes
		}
		w.keep(*a.Allocation)
		r.Generation, r.At, r.Unfinished, r.Raised = a.Generation, at, true, false
		for k := range w.state.Failures {
			if k.Kind == podstate.ResizeContainer || k.Kind == podstate.RaiseCgroup || k.Kind == podstate.FitCgroup {
				delete(w.state.Failures, k)
			}
		}
		w.reg.deps.Metrics.resized(w.resizeBegan, false)
		w.resizeBegan = at
	case podstate.RaiseCgroup:
		r.Raised = a.Generation == r.Generation // else it is that of an earlier size
	case podstate.ResizeContainer:
		if r.Sent == nil {
			r.Sent = map[string]resources.Kernel{}
		}
		r.Sent[a.ID] = a.Kernel
		delete(r.Unsure, a.ID)
	case podstate.FitCgroup:
		if a.Generation != r.Generation {
			break // another size was allocated meanwhile, and has all before it
		}
		r.Unfinished, r.Raised = false, false
		clear(r.Sent)
		clear(r.Unsure)
		w.reg.deps.Metrics.resized(w.resizeBegan, true)
		w.resizeBegan = time.Time{}
	}
}

// resizeFailed notes that a container may or may not have been changed.
func (w *worker) resizeFailed(a podstate.Action) {
	if a.Kind != podstate.ResizeContainer {
		return
	}
	r := &w.state.Resize
	if r.Unsure == nil {
		r.Unsure = map[string]int64{}
	}
	if most, again := r.Unsure[a.ID]; again && (most == 0 || a.Kernel.Memory > 0 && a.Kernel.Memory < most) {
		return
	}
	r.Unsure[a.ID] = a.Kernel.Memory
}
