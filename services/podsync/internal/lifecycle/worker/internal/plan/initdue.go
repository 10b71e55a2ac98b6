package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// progress is how far the pod has come in its sandbox.
type progress struct {
	known bool
	// regularSeen: a regular container was made there.
	regularSeen bool
	// furthest is the index of the last init container that has run there: those before
	// it have done their part.
	furthest int
	// initDone: the regular containers may run: they have run there already, or every
	// init container has done its part.
	initDone bool
}

// progressed is the pod's progress; not to be asked before the pod's round is known.
func (p *planner) progressed() *progress {
	g := &p.progress
	if g.known {
		return g
	}
	g.known = true
	for i, v := range p.views {
		switch {
		case v.here() == nil:
		case v.class == regular:
			g.regularSeen = true
		case v.class != ephemeral:
			g.furthest = i
		}
	}
	switch {
	case g.regularSeen:
		g.initDone = true
	case p.sandbox == nil:
		g.initDone = !p.hasInit()
	default:
		g.initDone = p.initEnded(g.furthest)
	}
	return g
}

// didItsWork says whether an init container has ended well. One of which the kernel has
// ended a process for its memory has not: what it was to prepare may be half of it, though
// its own process, a shell say, has ended with 0.
func didItsWork(c *podstate.Container) bool {
	return c.Ended() && c.ExitCode == 0 && c.Reason != reasonOOMKilled
}

// endedBadly says whether an init container has ended, and not well.
func endedBadly(c *podstate.Container) bool { return c.Ended() && !didItsWork(c) }

// failedForGood says whether an init container has failed for good. One that was followed by
// another in the sandbox had done its part when it ended, whatever its record says since:
// that the kernel has ended a process of it the runtime may say late.
func (p *planner) failedForGood(v *view) bool {
	return v.class == ordinaryInit && endedBadly(v.newest()) && v.at >= p.furthestInit() && !p.restarts(v, v.newest()) && !p.initDone()
}

// initEnded says whether every init container has done its part; those before the
// furthest have.
func (p *planner) initEnded(furthest int) bool {
	for i, v := range p.views {
		if i < furthest {
			continue // it has done its part; a sidecar that has ended since holds nobody up
		}
		switch v.class {
		case ordinaryInit:
			if !didItsWork(v.here()) {
				return false
			}
		case sidecar:
			if v.here() == nil || !p.started(v) {
				return false
			}
		}
	}
	return true
}

func (p *planner) initDone() bool    { return p.progressed().initDone }
func (p *planner) regularSeen() bool { return p.progressed().regularSeen }
func (p *planner) furthestInit() int { return p.progressed().furthest }

// initializesAnew says whether the pod goes through its init containers for a
// sandbox in which nothing of the rest has run: that of a new pod, or the one
// after a reboot.
func (p *planner) initializesAnew() bool {
	if p.end != nil || p.sandbox == nil || !p.hasInit() || p.initDone() {
		return false
	}
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		v := p.viewOf(c.Name)
		switch {
		case v == nil || c.SandboxID != p.sandbox.ID:
		case v.class == regular:
			return false // all containers are restarted in it, init containers too
		case v.class != ephemeral && p.s.Reported.Phase == v1.PodRunning:
			return false // it has been through them in it, and a sidecar has ended since
		}
	}
	return true
}

func (p *planner) hasInit() bool {
	return len(p.s.Pod.Spec.InitContainers) > 0
}

// initDue lists the init containers and sidecars that are to start next.
func (p *planner) initDue() []*view {
	if p.sandbox == nil {
		return p.firstInit()
	}
	seen := p.regularSeen()
	furthest := p.furthestInit()
	var due []*view
	for i, v := range p.views {
		if v.class != ordinaryInit && v.class != sidecar {
			break
		}
		switch {
		case v.class == sidecar:
			if v.here() == nil || v.here().Ended() || v.here().Created() {
				due = append(due, v)
			}
			if !seen && i >= furthest && (v.here() == nil || !p.started(v)) {
				return due
			}
		case seen || i < furthest:
			// It has done its work, whether its record is still there or not.
		case v.here() == nil, v.here().Created():
			return append(due, v)
		case !v.here().Ended():
			return due
		case !didItsWork(v.here()):
			if p.restarts(v, v.here()) {
				due = append(due, v)
			}
			return due
		}
	}
	return due
}

// firstInit is the first container that a new sandbox is for.
func (p *planner) firstInit() []*view {
	if !p.hasInit() {
		return nil
	}
	// A sandbox only for init containers makes no sense when nothing of what
	// they prepare may run again.
	if !p.regularWanted() {
		return nil
	}
	v := p.views[0]
	if v.class == ordinaryInit && endedBadly(v.newest()) && !p.restarts(v, v.newest()) {
		return nil
	}
	return []*view{v}
}

func (p *planner) regularWanted() bool {
	for _, v := range p.views {
		if v.class == regular && (v.newest() == nil || v.newest().Live() || v.newest().Created() || p.restarts(v, v.newest())) {
			return true
		}
	}
	return false
}
