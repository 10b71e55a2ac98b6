package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// tally counts the containers of a pod as the phase sees them.
type tally struct {
	// pendingInit: an ordinary init container has not done its work.
	pendingInit bool
	// failedInit: one failed for good.
	failedInit                  bool
	unknown, running, waiting   int
	stopped, failed, restarting int
	regularStarted              bool
}

// phase is the pod's phase by its containers. ended says that nothing of the
// pod will start again.
// Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
func (p *planner) phase(ended bool) v1.PodPhase {
	t := p.tally()
	switch {
	case t.failedInit:
		return v1.PodFailed
	case t.pendingInit:
		return v1.PodPending
	case t.waiting > 0:
		return v1.PodPending
	case t.running > 0 && t.unknown == 0:
		return v1.PodRunning
	case t.running == 0 && t.stopped > 0 && t.unknown == 0:
		if t.restarting > 0 && !(ended && !p.s.Static) {
			return v1.PodRunning
		}
		if t.failed == 0 {
			return v1.PodSucceeded
		}
		return v1.PodFailed
	default:
		return v1.PodPending
	}
}

func (p *planner) tally() tally {
	var t tally
	for _, v := range p.views {
		if c := v.shown(); v.class == regular && c != nil && c.State != podstate.StateCreated {
			t.regularStarted = true
		}
	}
	for _, v := range p.views {
		switch v.class {
		case ordinaryInit:
			t.addInit(p, v)
		case sidecar:
			t.addSidecar(p, v)
		case regular:
			t.addRegular(p, v)
		}
	}
	return t
}

func (t *tally) addInit(p *planner, v *view) {
	c := v.newest()
	switch {
	case v.here() == nil && p.regularSeen():
		// It was followed by others, and its record was removed.
	case c == nil, c.State == podstate.StateCreated, c.Live():
		t.pendingInit = true
	case v.stale(c):
		t.pendingInit = true
	case p.failedForGood(v):
		t.failedInit = true
	case endedBadly(c) && !p.initDone():
		t.pendingInit = true
	}
}

func (t *tally) addSidecar(p *planner, v *view) {
	c := v.shown()
	switch {
	case c == nil, c.State == podstate.StateCreated:
		t.waiting++
	case c.State == podstate.StateRunning:
		if !p.started(v) && !t.regularStarted {
			t.pendingInit = true
		}
		t.running++
	case c.State == podstate.StateUnknown:
		t.unknown++
	}
}

func (t *tally) addRegular(p *planner, v *view) {
	c := v.shown()
	switch {
	case c == nil, c.State == podstate.StateCreated, c.State == podstate.StateRunning && c.Hook == podstate.HookRunning && v.before() == nil:
		t.waiting++
	case c.State == podstate.StateRunning:
		t.running++
	case c.State == podstate.StateUnknown:
		t.unknown++
	default:
		t.stopped++
		if c.ExitCode != 0 {
			t.failed++
		}
		if p.restarts(v, c) {
			t.restarting++
		}
	}
}

// lastPhase is the phase of a pod of which nothing will start again; sidecars,
// which go on until they are stopped, have no part in it.
func (p *planner) lastPhase() v1.PodPhase {
	if p.initFailed() {
		return v1.PodFailed
	}
	for _, v := range p.views {
		if v.class == regular && (v.newest() == nil || v.newest().ExitCode != 0) {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}
