package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// killAll goes on with the end of every live container within what is left of
// the pod's grace period. All stops begin at once, with their preStop hooks; a
// sidecar then holds out until those that need it have ended.
// Source: KEP-753, kubelet-surface 4.7.
func (p *planner) killAll() {
	left, total := p.graceLeft()
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if c.live() && !p.starting(c) {
			p.stopContainer(c, left, total, "Stopping container "+c.Name, p.needed(c))
		}
	}
}

// kill asks for the end of one container of a pod that goes on.
func (p *planner) kill(c *Container, grace int64, reason string) {
	left := grace
	if stop, begun := p.s.Stops[c.ID]; begun {
		left = max(0, grace-int64(p.s.Now.Sub(stop.Began)/time.Second))
	}
	p.stopContainer(c, left, grace, reason, false)
}

// stopContainer goes on with the stop of a container that has left seconds of
// its total period: its preStop hook, then the stop itself. One that is held
// is stopped when it is not held any more or its period is over.
func (p *planner) stopContainer(c *Container, left, total int64, reason string, held bool) {
	stop, begun := p.s.Stops[c.ID]
	kill := Action{
		Key: Key{KillContainer, c.ID}, Container: c.Name, ID: c.ID, Reason: reason, Announced: begun,
		GraceSeconds: max(left, shortestGrace), GraceTotalSeconds: total,
	}
	if now, running := p.s.InFlight[kill.Key]; running {
		kill.Replace = total < now.GraceTotalSeconds // a period that shrank cuts short the stop that runs
		p.emit(kill)
		return
	}
	begin := Action{Key: Key{BeginStop, c.ID}, Container: c.Name, ID: c.ID, Reason: reason, GraceTotalSeconds: total}
	if left > 0 && !stop.PreStopDone && (held || p.hasPreStop(c)) {
		p.wake(p.s.Now.Add(Seconds(left)))
		p.emit(begin)
		return
	}
	if left > 0 && held {
		p.wake(p.s.Now.Add(Seconds(left)))
		return
	}
	if p.running(BeginStop, c.ID) {
		p.out.Cancel = append(p.out.Cancel, begin.Key) // the hook has had its time
	}
	p.emit(kill)
}

func (p *planner) hasPreStop(c *Container) bool {
	if p.s.Pod == nil {
		return c.PreStop != nil
	}
	v := p.viewOf(c.Name)
	return v != nil && v.spec.Lifecycle != nil && v.spec.Lifecycle.PreStop != nil
}

// needed says whether the container is a sidecar that others still rely on:
// the regular containers, and the sidecars after it.
func (p *planner) needed(c *Container) bool {
	mine := -1
	for i, v := range p.views {
		if v.spec.Name == c.Name && v.class == sidecar {
			mine = i
		}
	}
	if mine < 0 {
		return false
	}
	for i, v := range p.views {
		if (v.class == regular || v.class == sidecar && i > mine) && v.last != nil && v.last.live() {
			return true
		}
	}
	return false
}

func (p *planner) specGrace() int64 {
	if p.s.Pod != nil && p.s.Pod.Spec.TerminationGracePeriodSeconds != nil {
		return *p.s.Pod.Spec.TerminationGracePeriodSeconds
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

func (p *planner) probeGrace(probe *v1.Probe) int64 {
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return *probe.TerminationGracePeriodSeconds
	}
	return p.specGrace()
}
