package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Why a pod is not stopped for a reason of the node's own.
var (
	// ErrNoPod: there is no such pod.
	ErrNoPod = errors.New("there is no such pod")
	// ErrEnded: nothing of the pod runs any more, and nothing will.
	ErrEnded = errors.New("the pod has ended")
	// ErrCritical: the node stops no static pod, nor one of a critical priority, unless
	// the machine goes down.
	ErrCritical = errors.New("the pod is static or of a critical priority: the node does not stop it for a reason of its own")
	// ErrNotKept: it is stopped, but a crash may let it go on.
	ErrNotKept = errors.New("the pod is being stopped, but that could not be kept over a restart of podsync")
)

// keepWithin is how long a disk may take to keep a stop before the pod is stopped without:
// that it is slow may be why the pod has to go.
const keepWithin = time.Second

// Stop asks for a pod's end for a reason of the node's own, and returns when a crash
// does not lose that; that the pod has ended its status says. already: it was being
// stopped before. An event says the reason, with these annotations. A disk that takes
// nothing may be the reason: what cannot be kept is stopped all the same, and the error
// is ErrNotKept. A static pod whose machine goes down is to start anew with it: nothing
// is kept of that.
func (r *Registry) Stop(ctx context.Context, uid types.UID, stop podstate.Stop, annotations map[string]string) (already bool, err error) {
	static, err := r.mayStop(uid, stop)
	if err != nil {
		return false, err
	}
	var unkept error
	if !static {
		within, cancel := context.WithTimeout(ctx, keepWithin)
		unkept = r.deps.Ends.Put(within, uid, stop)
		cancel()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.toStopLocked(uid, stop)
	if err != nil {
		if w == nil || w.ending == nil {
			r.deps.Ends.Withdraw(uid) // it has come to its end meanwhile, and that may be kept
		}
		return false, err
	}
	already = w.leavesLocked()
	if w.ending == nil {
		klog.FromContext(r.life).Info("The node ends a pod", "pod", klog.KObj(w.pod), "podUID", uid, "reason", stop.Reason, "message", short(stop.Message, mostLogged))
		if !stop.Shutdown { // which would be one event for each pod of the node
			r.deps.Events.Annotated(w.pod, annotations, v1.EventTypeWarning, stop.Reason, stop.Message)
		}
	}
	w.withMachine = w.withMachine || static && stop.Shutdown && w.ending == nil
	w.stopLocked(stop, unkept == nil)
	if unkept != nil {
		return already, fmt.Errorf("%w: %w", ErrNotKept, unkept)
	}
	return already, nil
}

// CalledOff has the static pods begin anew that were stopped or rejected because the
// machine goes down: it does not, and nobody else makes them again.
func (r *Registry) CalledOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.pods {
		if !w.withMachine || w.gone || w.pod == nil {
			continue
		}
		// As if its source had removed it and wanted it again.
		w.gone, w.again, w.againSource = true, w.pod, w.source
		w.leavesLocked()
		w.inbox.tell(func(in *told) { in.removed = true })
		w.returnsLocked()
	}
}

func (r *Registry) mayStop(uid types.UID, stop podstate.Stop) (static bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.toStopLocked(uid, stop)
	return err == nil && w.source != apiSource, err
}

// toStopLocked is the pod, and why it is not stopped.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
func (r *Registry) toStopLocked(uid types.UID, stop podstate.Stop) (*held, error) {
	w := r.pods[uid]
	switch {
	case r.life == nil: // it may be there, and nobody can stop it yet
		return w, ErrNotAllKnown
	case w == nil || w.pod == nil:
		return w, ErrNoPod
	case critical(w) && !stop.Shutdown:
		return w, ErrCritical
	case w.stopped || podutil.TerminalPhase(w.pod.Status.Phase):
		return w, ErrEnded
	}
	return w, nil
}

// goOnEndingLocked goes on with what a previous run has decided.
func (h *held) goOnEndingLocked() {
	if stop := h.reg.deps.Ends.Of(h.uid); stop != nil && !podutil.TerminalPhase(h.pod.Status.Phase) {
		h.stopLocked(*stop, true)
	}
}

// stopLocked tells a worker to end its pod; kept says that a crash does not lose that.
// What it is told is all that was asked for: the first reason stands.
func (h *held) stopLocked(stop podstate.Stop, kept bool) {
	h.endsLocked(stop)
	h.leavesLocked()
	stop = h.ending.stop
	h.inbox.tell(func(in *told) { in.stop, in.stopKept = &stop, kept })
}

// ending is how the node ends a pod for a reason of its own, and since when.
type ending struct {
	stop  podstate.Stop
	since time.Time
}

// endsLocked keeps how the pod is ended: the first reason stands.
func (h *held) endsLocked(stop podstate.Stop) {
	if h.ending == nil {
		h.ending = &ending{stop, time.Now()}
		return
	}
	h.ending.stop = h.ending.stop.Hastened(stop)
}

// Endings are the pods that the node ends for a reason of its own and of which processes
// or volumes are left.
func (r *Registry) Endings() []podstate.Ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []podstate.Ending
	for uid, h := range r.pods {
		if h.ending == nil || h.freed {
			continue
		}
		e := podstate.Ending{UID: uid, Stop: h.ending.stop, Since: h.ending.since, Ended: h.stopped}
		if h.pod != nil {
			e.Namespace, e.Name = h.pod.Namespace, h.pod.Name
		}
		out = append(out, e)
	}
	return out
}

// takeStop takes in that the node ends the pod for a reason of its own.
func (w *worker) takeStop(stop podstate.Stop, kept bool) {
	first := w.state.Stop == nil
	sooner := w.state.TakeStop(stop, kept, time.Now())
	switch {
	case first:
		w.line.Note(timeline.Entry{What: "the node ends it", Detail: stop.Reason + ": " + stop.Message})
	case sooner:
		w.line.Note(timeline.Entry{What: "the node ends it sooner", Detail: fmt.Sprintf("grace period %d s", *w.state.Stop.GraceSeconds)})
	}
}
