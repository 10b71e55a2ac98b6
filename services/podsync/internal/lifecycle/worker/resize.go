package worker

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// resume takes up what a previous run had allocated, had.
func (w *worker) resume(had resize.Allocation) {
	made, at, known := w.reg.allocatedBySandbox(w.uid)
	f := plan.Former{Had: had, Lost: w.reg.deps.Allocations.Lost(at)}
	if known {
		f.Made = &made
	}
	if e, kept := w.reg.deps.Allocations.Get(w.uid); kept {
		f.Stored, f.Generation, f.At = true, e.Generation, e.At
	}
	if w.state.Resume(f); f.Stored && !w.state.Resize.Unfinished {
		w.reg.deps.Allocations.InEffect(w.uid, f.Generation) // which may not have been written down
	}
}

func conditionOf(st *v1.PodStatus, t v1.PodConditionType) (v1.PodCondition, bool) {
	if c := podutil.Condition(st.Conditions, t); c != nil {
		return *c, true
	}
	return v1.PodCondition{}, false
}

// waitedSince is when the pod's resize began to wait, as a previous run has told; zero
// when it does not wait.
func waitedSince(st *v1.PodStatus) time.Time {
	c, _ := conditionOf(st, v1.PodResizePending)
	return c.LastTransitionTime.Time
}

// takeGrant puts what the Registry has decided of the pod's resources into the state.
func (w *worker) takeGrant(now time.Time) {
	if w.state.Resize.Kept == nil || w.state.Desired == nil {
		return
	}
	again := w.state.Resize.Due(now)
	g := w.reg.resizeState(w.uid, again)
	if g.open {
		g.pending = w.state.OpenResize()
	}
	w.state.Granted(g.allocated, g.generation, g.pending, now)
}
