package plan

import (
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// killAll goes on with the end of every live container within what is left of
// the pod's grace period. All stops begin at once, with their preStop hooks; a
// sidecar then holds out until those that need it have ended.
// Source: KEP-753.
func (p *planner) killAll() {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if c.Live() && !p.s.starting(c) {
			g := p.graceInEnd(c)
			p.stopContainer(c, g, kill{"Stopping container " + c.Name, g.whole, podstate.CauseEnd}, p.needed(c))
		}
	}
}

// kill asks for the end of one container of a pod that goes on.
func (p *planner) kill(c *podstate.Container, k kill) {
	p.stopContainer(c, p.graceOfOne(c, k.grace), k, false)
}

// stopContainer goes on with the stop of a container within what g says that it
// has: its preStop hook, then the stop itself. One that is held
// is stopped when it is not held any more or its period is over.
func (p *planner) stopContainer(c *podstate.Container, g grace, k kill, held bool) {
	stop, begun := p.s.Stops[c.ID]
	end := podstate.Action{
		Key: podstate.Key{Kind: podstate.KillContainer, Object: c.ID}, Container: c.Name, ID: c.ID, Reason: k.reason, Cause: k.cause, Announced: begun,
		GraceSeconds: p.signalled(c, g), GraceTotalSeconds: g.whole,
	}
	end.Until = p.s.Now.Add(podutil.Seconds(end.GraceSeconds))
	if now, running := p.s.InFlight[end.Key]; running {
		// A period that shrank cuts short the stop that runs, unless that is over
		// sooner all the same: a stop that is begun anew has two seconds at least.
		end.Replace = g.whole < now.GraceTotalSeconds && (now.Until.IsZero() || now.Until.Sub(end.Until) >= time.Second)
		p.emit(end)
		return
	}
	begin := podstate.Action{Key: podstate.Key{Kind: podstate.BeginStop, Object: c.ID}, Container: c.Name, ID: c.ID, Reason: k.reason, Cause: k.cause, GraceTotalSeconds: g.whole}
	if g.left > 0 && !stop.PreStopDone && (held || p.hasPreStop(c)) {
		p.wake(p.s.Now.Add(podutil.Seconds(g.left)))
		p.emit(begin)
		return
	}
	if g.left > 0 && held {
		p.wake(p.s.Now.Add(podutil.Seconds(g.left)))
		return
	}
	// A hook that still runs has the last seconds together with its container.
	p.emit(end)
}

// endHooks ends the preStop hooks of containers that have ended: an HTTP
// request or a sleep does not end with them.
func (p *planner) endHooks() {
	for key := range p.s.InFlight {
		if key.Kind == podstate.BeginStop && !p.container(key.Object).Live() {
			p.out.Cancel = append(p.out.Cancel, key)
		}
	}
}

func (p *planner) hasPreStop(c *podstate.Container) bool {
	if p.s.Pod == nil {
		return c.PreStop != nil
	}
	v := p.viewOf(c.Name)
	return v != nil && v.spec.Lifecycle != nil && v.spec.Lifecycle.PreStop != nil
}

// needed says whether the container is a sidecar that others still rely on:
// the regular containers, and the sidecars after it.
func (p *planner) needed(c *podstate.Container) bool {
	v := p.viewOf(c.Name)
	return v != nil && v.class == sidecar && v.at < p.lastNeeding
}
