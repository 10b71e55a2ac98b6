package worker

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// Allocations is what resizes were allocated; *allocation.Store has it.
type Allocations interface {
	Get(uid types.UID) (allocation.Entry, bool)
	Lost(made time.Time) bool
	InEffect(uid types.UID, generation int64)
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
	// open: whether the newest spec is allocated has yet to be decided.
	open bool
}

// allotLocked notes what a pod that is admitted has.
func (h *held) allotLocked(a resize.Allocation, generation int64) {
	h.grant = grant{known: true, allocated: a, generation: generation, pod: a.Apply(h.pod), since: h.pendingSince}
	h.reg.activeChanged()
}

// activeChanged tells that other pods are active, or have something else.
func (r *Registry) activeChanged() {
	if r.deps.ActiveChanged != nil {
		r.deps.ActiveChanged()
	}
}

// Active are the pods that are admitted and have not ended, with what they are
// allocated; known is false while there may be others.
func (r *Registry) Active() (pods []*v1.Pod, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.activeLocked(nil), !r.all.IsZero()
}

// regrantLocked keeps grant.pod at the newest pod.
func (h *held) regrantLocked() {
	if h.grant.known && h.pod != nil {
		h.grant.pod = h.grant.allocated.Apply(h.pod)
	}
}

// resizingLocked says whether the pod is to have something else than it has.
func (h *held) resizingLocked() bool {
	return h.grant.known && h.grant.pod != h.pod && h.admission == podstate.Admitted && !h.stopped && !h.gone &&
		h.pod != nil && h.pod.DeletionTimestamp == nil
}

// resizeState is what has been decided of a pod's resources. Before all pods are known
// nothing is: what is free may be that of one whose source is just telling of it.
func (r *Registry) resizeState(uid types.UID, again bool) grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	switch {
	case !w.resizingLocked():
		w.grant.pending, w.grant.asked, w.grant.since = nil, nil, time.Time{}
	case r.all.IsZero():
		g := w.grant
		g.open = true
		return g
	case w.grant.asked != w.pod:
		r.settleLocked(w, triggerUpdated)
	case again:
		r.settleLocked(w, triggerPeriodic)
	}
	return w.grant
}

// mostAgain is how often one settling asks those again that wait, for what others have
// given back. Each of them is asked again in a while all the same.
const mostAgain = 16

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
	if r.all.IsZero() {
		return
	}
	var waiting []*held
	for _, w := range r.pods {
		if w.resizingLocked() {
			waiting = append(waiting, w)
		}
	}
	resize.Sort(waiting, (*held).turnLocked)
	again := 0
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
		if frees && i > 0 && again < mostAgain {
			i, again = 0, again+1
		}
	}
}

// defersLocked notes that a resize has to wait, or can never be, and says whether that
// is news.
func (h *held) defersLocked(pending *podstate.ResizePending, tell bool) bool {
	pending.Generation = h.pod.Generation
	if h.grant.since.IsZero() {
		h.grant.since = time.Now()
	}
	changed := h.grant.pending == nil || *h.grant.pending != *pending
	h.grant.pending, h.grant.asked = pending, h.pod
	if changed && tell {
		h.inbox.ring()
	}
	return changed
}

// turnLocked is what the pod's turn depends on.
func (h *held) turnLocked() resize.Waiting {
	return resize.Waiting{Desired: h.pod, Allocated: h.grant.pod, Since: h.grant.since}
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
func (h *held) allocatedLocked() *v1.Pod {
	switch {
	case h.grant.known:
		return h.grant.pod
	case h.admission == podstate.AdmissionPending && !h.claiming: // of a previous run, not taken up yet
		a, _ := h.formerLocked()
		return a.Apply(h.pod)
	}
	return h.pod
}

// formerLocked is what a pod was allocated in a previous run: what is
// kept of it, or else what its sandbox was made with. Where the former was lost,
// or the sandbox is, its status says it. A pod of which nothing says it has what its
// spec asks for.
func (h *held) formerLocked() (a resize.Allocation, generation int64) {
	if e, ok := h.reg.deps.Allocations.Get(h.uid); ok {
		return e.Allocation, e.Generation
	}
	made, at, known := h.reg.allocatedBySandboxLocked(h.uid)
	if known && !h.reg.deps.Allocations.Lost(at) {
		return made, 0
	}
	if told, ok := resize.Shown(h.pod); ok {
		return told, 0
	}
	if known {
		return made, 0
	}
	return resize.Of(h.pod), 0
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
