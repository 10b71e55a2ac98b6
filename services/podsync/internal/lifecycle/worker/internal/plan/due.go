package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// due lists the containers that are to start now, in order; containers that
// wait for their back-off or for others are left out, with a wake-up.
func (p *planner) due() []*view {
	var due []*view
	for _, v := range p.initDue() {
		if p.startable(v) {
			due = append(due, v)
		}
	}
	if p.initDone() {
		for _, v := range p.views {
			if v.class == regular && p.wanted(v) && p.startable(v) {
				due = append(due, v)
			}
		}
	}
	// Debug containers start whenever there is a sandbox to start them in.
	if p.sandbox != nil {
		for _, v := range p.views {
			if v.class == ephemeral && (v.newest() == nil || v.newest().Created()) {
				due = append(due, v)
			}
		}
	}
	return due
}

// wanted says whether the container is to start (now or after a back-off):
// nothing of it lives, and policy lets it start.
func (p *planner) wanted(v *view) bool {
	if v.here() != nil {
		switch v.here().State {
		case podstate.StateCreated:
			return true
		case podstate.StateExited:
			return p.restarts(v, v.here())
		default:
			return false
		}
	}
	switch {
	case v.newest() == nil:
		return true
	case v.newest().Live():
		return true // in a sandbox that is on its way out
	case v.newest().Created():
		return true
	case v.class == ordinaryInit:
		return true // a new sandbox begins with the init containers
	default:
		return p.restarts(v, v.newest())
	}
}

// startable says whether a wanted container may start now as far as its own
// past goes.
func (p *planner) startable(v *view) bool {
	if v.newest() != nil && (v.newest().Live() || p.startsFirst) {
		return false
	}
	at, _ := p.restartTime(v)
	if p.s.Now.Before(at) {
		p.wake(at)
		p.waitBackoff(v, at)
		return false
	}
	if at := p.afterSandbox(v); p.s.Now.Before(at) {
		p.wake(at)
		p.wait("container", v.spec.Name, "container "+v.spec.Name+" was killed from outside the pod; it starts again unless its sandbox goes, too",
			"look who kills processes or stops sandboxes on the node: another client of the runtime, or a person", at)
		return false
	}
	return true
}

// restartTime is when the container may start, and the back-off that it then carries.
func (p *planner) restartTime(v *view) (time.Time, time.Duration) {
	if c := v.newest(); c.Created() && v.before() == nil && !p.redefined(v, c) {
		return time.Time{}, c.Backoff // the one before it is lost, what it earned is written on this one
	}
	c := v.followed() // a start that came to nothing leaves the back-off as it is
	if !c.Ended() || p.redefined(v, c) {
		return time.Time{}, 0
	}
	if p.endedByRound(c) {
		return time.Time{}, c.Backoff // it is not to blame
	}
	if v.class == ordinaryInit && c.ExitCode == 0 {
		return time.Time{}, 0 // run again for a new sandbox
	}
	at, next := restartAt(c, p.s.Node)
	if p.ahead(c.FinishedAt) {
		return time.Time{}, next
	}
	return at, next
}

// redefined says whether the container was made from other than what is asked
// for now: its back-off is not the next one's.
func (p *planner) redefined(v *view, c *podstate.Container) bool {
	return c.ImageChanged(v.spec) || p.resized(v, c) || c.BackoffKey != "" && c.BackoffKey != podutil.BackoffKey(v.spec)
}

// ahead says whether a time at which something has happened is still to come:
// the clock was set back meanwhile, and nobody knows how long ago it was. What
// would wait from then on could wait for as long as the clock was wrong.
func (p *planner) ahead(at time.Time) bool { return at.Sub(p.s.Now) > time.Second }

// initDone says whether the regular containers may run: they have run in this
// sandbox already, or every init container has done its part.
func (p *planner) initDone() bool {
	if p.regularSeen() {
		return true
	}
	if p.sandbox == nil {
		return !p.hasInit()
	}
	furthest := p.furthestInit()
	for i, v := range p.views {
		switch v.class {
		case ordinaryInit:
			if i < furthest {
				continue // it has done its work, whether its record is still there or not
			}
			if v.here() == nil || !v.here().Ended() || v.here().ExitCode != 0 {
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

// regularSeen says whether a regular container was made in the usable sandbox.
func (p *planner) regularSeen() bool {
	for _, v := range p.views {
		if v.class == regular && v.here() != nil {
			return true
		}
	}
	return false
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
		case v.here().ExitCode != 0:
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
	if v.class == ordinaryInit && v.newest().Ended() && v.newest().ExitCode != 0 && !p.restarts(v, v.newest()) {
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

// furthestInit is the index of the last init container that has run in this
// sandbox: those before it have done their part.
func (p *planner) furthestInit() int {
	furthest := 0
	for i, v := range p.views {
		if (v.class == ordinaryInit || v.class == sidecar) && v.here() != nil {
			furthest = i
		}
	}
	return furthest
}
