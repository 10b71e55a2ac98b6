package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// All that is computed of grace periods is computed here: what a container is
// given, and what is left of that. Nobody else knows a shortest one or counts.

// shortestGrace is the least that a container gets to end by itself, in seconds.
const shortestGrace = 2

// grace is what a container has to end by itself, in seconds.
type grace struct {
	// whole is the period, and left what is left of it: a second that has begun
	// counts as left.
	whole, left int64
}

// graceInEnd is what a container has of the grace period of its pod, which ends.
func (p *planner) graceInEnd(c *podstate.Container) grace {
	left, whole := p.graceLeft(p.asked(c))
	return grace{whole: whole, left: p.leftOfStop(c, left)}
}

// graceOfOne is what one container of a pod that goes on has of a period of its own.
func (p *planner) graceOfOne(c *podstate.Container, whole int64) grace {
	return grace{whole: whole, left: p.leftOfStop(c, whole)}
}

// signalled is how many seconds the runtime gives the container between its signals
// when its stop, with what g gives it, goes out now.
func (p *planner) signalled(c *podstate.Container, g grace) int64 {
	left := g.left
	if _, failed := p.s.Failures[podstate.Key{Kind: podstate.KillContainer, Object: c.ID}]; failed {
		// Its signal may never have gone out: what passed since does not count.
		left = g.whole
		if stop, begun := p.s.Stops[c.ID]; begun {
			left = min(left, stop.GraceSeconds)
		}
	}
	return max(left, shortestGrace)
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

// leftOfStop is left, or what is left of the period that the container's stop was
// given before, if that is less: another reason to end it gives it no more time. A
// second that has begun counts as left.
func (p *planner) leftOfStop(c *podstate.Container, left int64) int64 {
	if stop, begun := p.s.Stops[c.ID]; begun {
		return min(left, max(0, int64((stop.Until.Sub(p.s.Now)+time.Second-1)/time.Second)))
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

// orphanGrace is the grace period of a pod that no source knows: what its
// containers were made with.
func (p *planner) orphanGrace() int64 {
	if p.orphansGrace > 0 {
		return p.orphansGrace
	}
	grace := int64(shortestGrace)
	for i := range p.s.Observed.Containers {
		grace = max(grace, p.s.Observed.Containers[i].GraceSeconds)
	}
	p.orphansGrace = grace
	return grace
}

// secondsSince is how many whole seconds have passed since a time.
func (p *planner) secondsSince(at time.Time) int64 {
	return int64(p.s.Now.Sub(at) / time.Second)
}

// graceTotal is the pod's whole grace period in seconds, the shortest that it was given.
func (p *planner) graceTotal() int64 {
	total := p.askedGrace()
	for _, b := range p.s.StopPeriods {
		total = min(total, b.Seconds)
	}
	return max(total, 1)
}

// askedGrace is the pod's own grace period in seconds, or the one that its deletion gives.
func (p *planner) askedGrace() int64 {
	total := p.specGrace()
	if p.s.Pod == nil {
		total = p.orphanGrace()
	} else if g := p.s.Pod.DeletionGracePeriodSeconds; g != nil {
		total = *g
	}
	return max(total, 1)
}

// graceLeft is what is left of the pod's grace period for what was first asked
// to end at the given time, and the whole of it, in seconds. A second that has
// begun counts as left: a stop that is tried again gives no less than the whole
// period. After a restart of this process it is the whole one again: when the previous
// run saw the deletion, and asked, nobody knows; the object's timestamp may be
// long past by then, if the apiserver was away.
func (p *planner) graceLeft(asked time.Time) (left, total int64) {
	total = p.graceTotal()
	since := func(began time.Time) int64 {
		if asked.After(began) {
			began = asked
		}
		return p.secondsSince(began)
	}
	given := p.askedGrace()
	left = given
	if !p.s.EndSince.IsZero() {
		left = given - since(p.s.EndSince)
	}
	if p.s.Pod == nil {
		return max(left, 0), total
	}
	if p.s.DeletionSince.After(p.s.EndSince) && !p.s.EndSince.IsZero() {
		// It was ending already: what the deletion gives counts from the deletion,
		// and makes nothing longer.
		left = given - since(p.s.DeletionSince)
		before := p.s.Shortened
		if len(before) == 0 || before[0].Since.After(p.s.EndSince) {
			before = append([]Period{{p.s.EndSince, p.specGrace()}}, before...)
		}
		for _, b := range before {
			left = min(left, b.Seconds-since(b.Since))
		}
	}
	for _, b := range p.s.StopPeriods { // what the node gives counts from when it gave it
		left = min(left, max(b.Seconds, 1)-since(b.Since))
	}
	return max(left, 0), total
}

// Period is a grace period that the pod has had.
type Period struct {
	Since   time.Time
	Seconds int64
}

// ContainerStop is the stop of one container, under way.
type ContainerStop struct {
	// Began is when it was announced.
	Began time.Time
	// Cause is why.
	Cause podstate.Cause
	// GraceSeconds is the whole period that it was given, the shortest of all;
	// zero when it was given none.
	GraceSeconds int64
	// Until is when the shortest of its periods is over, each from when it was given;
	// zero: GraceSeconds after it began.
	Until time.Time
	// PreStopDone: BeginStop has returned, however the hook ended.
	PreStopDone bool
}

// DeletedAnew takes in that the pod's object is being deleted, at first or with a
// shorter period than before; old is the pod before.
func (s *State) DeletedAnew(old *v1.Pod, now time.Time) {
	if s.Pod == nil || s.Pod.DeletionTimestamp == nil {
		return
	}
	if s.DeletionSince.IsZero() {
		s.DeletionSince = now
		return
	}
	if old == nil || old.DeletionTimestamp == nil || old.DeletionGracePeriodSeconds == nil || s.Pod.DeletionGracePeriodSeconds == nil ||
		*s.Pod.DeletionGracePeriodSeconds >= *old.DeletionGracePeriodSeconds {
		return
	}
	before := Period{s.DeletionSince, *old.DeletionGracePeriodSeconds}
	s.Shortened, s.DeletionSince = append(s.Shortened, before), now
}

// TakeStop takes in that the node ends the pod for a reason of its own, and says whether
// that gives it less time than an earlier one. The reason of the first stands.
func (s *State) TakeStop(stop podstate.Stop, kept bool, now time.Time) (sooner bool) {
	before := s.Stop
	if before != nil {
		stop = before.Hastened(stop)
	}
	s.Stop, s.StopUnkept = &stop, !kept
	if stop.GraceSeconds == nil || before != nil && before.GraceSeconds != nil && *before.GraceSeconds <= *stop.GraceSeconds {
		return false
	}
	s.StopPeriods = append(s.StopPeriods, Period{now, *stop.GraceSeconds})
	return before != nil
}
