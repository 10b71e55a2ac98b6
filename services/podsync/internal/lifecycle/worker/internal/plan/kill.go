package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

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
		if c.Live() && !p.starting(c) {
			left, total := p.graceLeft(p.asked(c))
			p.stopContainer(c, p.leftOfStop(c, left), kill{"Stopping container " + c.Name, total, podstate.CauseEnd}, p.needed(c))
		}
	}
}

// asked is when the container was first asked to end. While its start is not
// over it cannot be, and that may take as long as the runtime does not answer:
// it loses nothing of its grace period by that.
func (p *planner) asked(c *podstate.Container) time.Time {
	if stop, begun := p.s.Stops[c.ID]; begun {
		return stop.Began
	}
	return p.s.Now
}

// kill asks for the end of one container of a pod that goes on.
func (p *planner) kill(c *podstate.Container, k kill) {
	left := k.grace
	if stop, begun := p.s.Stops[c.ID]; begun && stop.Until.IsZero() {
		left = max(0, k.grace-int64(p.s.Now.Sub(stop.Began)/time.Second))
	}
	p.stopContainer(c, p.leftOfStop(c, left), k, false)
}

// leftOfStop is left, or what is left of the period that the container's stop was
// given before, if that is less: another reason to end it gives it no more time. A
// second that has begun counts as left.
func (p *planner) leftOfStop(c *podstate.Container, left int64) int64 {
	stop, begun := p.s.Stops[c.ID]
	switch {
	case begun && !stop.Until.IsZero():
		return min(left, max(0, int64((stop.Until.Sub(p.s.Now)+time.Second-1)/time.Second)))
	case begun && stop.GraceSeconds > 0:
		return min(left, max(0, stop.GraceSeconds-p.secondsSince(stop.Began)))
	}
	return left
}

// Ask notes that the stop is asked for, at first or anew: a shorter period counts
// from now, and none makes it longer.
func (s ContainerStop) Ask(a podstate.Action, now time.Time) ContainerStop {
	until := now.Add(podutil.Seconds(a.GraceTotalSeconds))
	if s.Began.IsZero() {
		s.Began, s.GraceSeconds, s.Until = now, a.GraceTotalSeconds, until
	}
	s.Cause, s.GraceSeconds = a.Cause, min(s.GraceSeconds, a.GraceTotalSeconds)
	if until.Before(s.Until) {
		s.Until = until
	}
	return s
}

// stopContainer goes on with the stop of a container that has left seconds of
// its whole period: its preStop hook, then the stop itself. One that is held
// is stopped when it is not held any more or its period is over.
func (p *planner) stopContainer(c *podstate.Container, left int64, k kill, held bool) {
	stop, begun := p.s.Stops[c.ID]
	end := podstate.Action{
		Key: podstate.Key{Kind: podstate.KillContainer, Object: c.ID}, Container: c.Name, ID: c.ID, Reason: k.reason, Cause: k.cause, Announced: begun,
		GraceSeconds: max(left, shortestGrace), GraceTotalSeconds: k.grace,
	}
	if _, failed := p.s.Failures[end.Key]; failed {
		// Its signal may never have gone out: what passed since does not count.
		whole := k.grace
		if stop.GraceSeconds > 0 {
			whole = min(whole, stop.GraceSeconds)
		}
		end.GraceSeconds = max(whole, shortestGrace)
	}
	end.Until = p.s.Now.Add(podutil.Seconds(end.GraceSeconds))
	if now, running := p.s.InFlight[end.Key]; running {
		// A period that shrank cuts short the stop that runs, unless that is over
		// sooner all the same: a stop that is begun anew has two seconds at least.
		end.Replace = k.grace < now.GraceTotalSeconds && (now.Until.IsZero() || now.Until.Sub(end.Until) >= time.Second)
		p.emit(end)
		return
	}
	begin := podstate.Action{Key: podstate.Key{Kind: podstate.BeginStop, Object: c.ID}, Container: c.Name, ID: c.ID, Reason: k.reason, Cause: k.cause, GraceTotalSeconds: k.grace}
	if left > 0 && !stop.PreStopDone && (held || p.hasPreStop(c)) {
		p.wake(p.s.Now.Add(podutil.Seconds(left)))
		p.emit(begin)
		return
	}
	if left > 0 && held {
		p.wake(p.s.Now.Add(podutil.Seconds(left)))
		return
	}
	// A hook that still runs has the last seconds together with its container.
	p.emit(end)
}

// endHooks ends the preStop hooks of containers that have ended: an HTTP
// request or a sleep does not end with them.
func (p *planner) endHooks() {
	for key := range p.s.InFlight {
		if key.Kind == podstate.BeginStop && !p.isLive(key.Object) {
			p.out.Cancel = append(p.out.Cancel, key)
		}
	}
}

func (p *planner) isLive(id string) bool {
	for i := range p.s.Observed.Containers {
		if c := &p.s.Observed.Containers[i]; c.ID == id {
			return c.Live()
		}
	}
	return false
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
		if (v.class == regular || v.class == sidecar && i > mine) && v.last != nil && v.last.Live() {
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
