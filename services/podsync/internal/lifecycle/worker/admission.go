package worker

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// Question is what admission decides on.
type Question struct {
	Pod    *v1.Pod
	Static bool
	// Asked is when the pod first asked, Waited how long that is ago.
	Asked  time.Time
	Waited time.Duration
	// Active are the admitted pods that have not ended.
	Active []*v1.Pod
	// Leaving are those of Active that are being stopped, and for how long they are
	// though something of them runs.
	Leaving map[types.UID]time.Duration
	// Gone are those of Active that their source does not have any more.
	Gone map[types.UID]bool
}

// Answer is what admission decided.
type Answer struct {
	podstate.Admission
	// Preempt are the pods that are stopped to make room; the decision is
	// pending then, and asked for again when they have ended.
	Preempt []Preemption
}

// Preemption is the end of a pod for another's sake.
type Preemption struct {
	UID types.UID
	// Signal is the resource that is short.
	Signal string
	Stop   podstate.Stop
}

// sayWaiting is how long a pod waits for admission before it is said as an event.
const sayWaiting = 5 * time.Second

// admit asks admission, unless a previous run has.
func (w *worker) admit() {
	if !w.state.Observed.Known {
		return
	}
	if w.state.Admitted() {
		if had, ok := w.reg.accept(w.uid, waitedSince(&w.state.Reported)); ok {
			w.line.Note(timeline.Entry{What: "taken over", Detail: "it was there when this process started"})
			w.state.Admission = podstate.Admission{Decision: podstate.Admitted}
			w.resume(had)
		}
		return
	}
	if w.state.Unwanted() {
		return // nobody is to make room for it
	}
	if w.admitAt.IsZero() {
		w.admitAt = time.Now()
	}
	a, asked := w.reg.admit(w.uid, Question{Pod: w.state.Desired, Static: w.state.Static, Asked: w.admitAt, Waited: time.Since(w.admitAt)})
	waited := time.Since(w.admitAt)
	w.state.AdmitAgain = w.reg.cfg.AdmitAgain
	if !asked {
		w.admitAt, w.state.AdmitAgain = time.Time{}, 0 // whoever holds it back wakes it
	}
	w.state.Admission = a
	switch {
	case a.Decision == podstate.Admitted:
		w.line.Note(timeline.Entry{What: "admitted"})
		w.state.Keep(resize.Of(w.state.Desired))
	case a.Decision == podstate.Rejected:
		w.line.Note(timeline.Entry{What: "rejected", Error: a.Reason + ": " + a.Message})
		w.log.Info("Pod was rejected", "reason", a.Reason, "message", a.Message)
		w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeWarning, a.Reason, a.Message)
		w.reg.deps.Metrics.rejected(a.Reason)
	case a.Decision == podstate.AdmissionPending && a.Reason != "" && a.Reason != w.waitSaid && waited >= sayWaiting:
		w.waitSaid = a.Reason
		w.log.Info("Pod waits for admission", "reason", a.Reason, "message", a.Message)
		w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeNormal, "AdmissionPending", a.Message)
	}
}

// admit asks admission for a worker's pod, with all others that count, and
// stops those that must make room. asked is false while the pod is held back.
func (r *Registry) admit(uid types.UID, q Question) (a podstate.Admission, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	if r.holdLocked(w); w.keptBack {
		return podstate.Admission{Reason: "SameName", Message: "an earlier static pod of this name has not ended yet"}, false
	}
	q.Leaving, q.Gone = map[types.UID]time.Duration{}, map[types.UID]bool{}
	for uid, other := range r.pods {
		if other == w || other.pod == nil || other.stopped && !other.mayComeBackLocked(w) || !other.countsLocked() && !(other.claiming && !critical(w)) {
			continue
		}
		q.Active = append(q.Active, other.allocatedLocked())
		if other.leavesLocked() {
			q.Leaving[uid] = other.stoppedForLocked()
		}
		if other.gone {
			q.Gone[uid] = true
		}
	}
	answer := r.deps.Admit(q)
	w.admission = answer.Decision
	w.withMachine = w.withMachine || q.Static && answer.Decision == podstate.Rejected && answer.Reason == reasonShutdown
	if answer.Decision == podstate.Admitted {
		w.allotLocked(resize.Of(q.Pod), 0)
	}
	w.claiming = answer.Decision == podstate.AdmissionPending && answer.Reason == reasonPreempting
	for _, p := range answer.Preempt {
		other := r.pods[p.UID]
		if other == nil || other.ending != nil || other.pod == nil {
			continue
		}
		klog.FromContext(r.life).Info("Stopping a pod to make room for this one", "pod", klog.KObj(q.Pod), "victim", klog.KObj(other.pod), "signal", p.Signal)
		r.deps.Events.Pod(other.pod, v1.EventTypeWarning, p.Stop.Reason, p.Stop.Message)
		r.deps.Metrics.preempted(p.Signal)
		other.preempted = true
		other.stopLocked(p.Stop, false)
	}
	return answer.Admission, true
}

// leavesLocked says whether a pod is being stopped, and keeps since when.
func (h *held) leavesLocked() bool {
	if h.ending == nil && !h.gone && (h.pod == nil || h.pod.DeletionTimestamp == nil) {
		return false
	}
	if h.leaves.IsZero() {
		h.leaves = time.Now()
	}
	return true
}

// stoppedForLocked is for how long a pod has been stopped without an end. Of one that
// has ended only the apiserver does not know yet.
func (h *held) stoppedForLocked() time.Duration {
	if h.stopped {
		return 0
	}
	return time.Since(h.leaves)
}

// mayComeBackLocked says whether a pod that was stopped to make room would be started
// again by the next podsync: the apiserver does not know its end yet, and nobody else
// does. Its room is not given away until then. A static pod does not wait for that: it
// may be the apiserver.
func (h *held) mayComeBackLocked(instead *held) bool {
	if !h.preempted || h.source != apiSource || instead.source != apiSource || !critical(instead) {
		return false
	}
	return !podutil.TerminalPhase(h.pod.Status.Phase)
}

// reasonPreempting is why a critical pod waits for others to end. What comes
// free is its own: no ordinary pod may take it meanwhile.
const reasonPreempting = "Preempting"

// reasonShutdown is why a pod is rejected while the machine goes down.
const reasonShutdown = "NodeShutdown"

func critical(w *held) bool {
	return w.source != apiSource || podutil.OfCriticalPriority(w.pod)
}

// countsLocked says whether others must reckon with what a pod uses: it was admitted,
// in this run of the process or, as its status, the runtime or the checkpoint of
// allocations shows, in an earlier one. One that has ended uses nothing, unless
// somebody else has written that and it runs.
func (h *held) countsLocked() bool {
	o, there := h.reg.observed[h.uid]
	if podutil.TerminalPhase(h.pod.Status.Phase) && !slices.ContainsFunc(o.Containers, running) {
		return false
	}
	if h.admission != podstate.AdmissionPending {
		return h.admission == podstate.Admitted
	}
	// What a list has named and nobody has looked at yet is a sandbox, too.
	_, kept := h.reg.deps.Allocations.Get(h.uid)
	return kept || h.pod.Status.StartTime != nil || len(o.Sandboxes) > 0 || there && !o.Known
}

func running(c podstate.Container) bool {
	return c.State == podstate.StateRunning || c.State == podstate.StateUnknown
}

// accept notes that a pod was admitted in a previous run, and returns what it was
// allocated there: from here on it may be allocated something else at any time.
func (r *Registry) accept(uid types.UID, since time.Time) (had resize.Allocation, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	if w.keptBack {
		return resize.Allocation{}, false
	}
	w.admission = podstate.Admitted
	w.pendingSince = since
	had, generation := w.formerLocked()
	w.allotLocked(had, generation)
	return had, true
}
