package plan

import (
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// due lists the containers that are to start now, in order; containers that
// wait for their back-off or for others are left out, with a wake-up.
func (p *planner) due() []*view {
	var due []*view
	// Debug containers start whenever there is a sandbox to start them in, whatever
	// keeps the others from it.
	if p.sandbox != nil {
		for _, v := range p.views {
			if v.class == ephemeral && (v.newest() == nil || v.newest().Created()) {
				due = append(due, v)
			}
		}
	}
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
	if v.class == ordinaryInit && didItsWork(c) {
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
