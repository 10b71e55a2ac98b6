package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// shortestGrace is the least that a container gets to end by itself, in seconds.
const shortestGrace = 2

// end is why a pod is to end.
type end struct {
	// phase it ends with; empty when its containers decide.
	phase v1.PodPhase
	// reason and message of a pod that has failed.
	reason  string
	message string
	// condition to add; nil for none.
	condition *v1.PodCondition
	// rejected pods never ran.
	rejected bool
}

// ending says why the pod is to end; nil when it is to run.
func (p *planner) ending() *end {
	s := p.s
	switch {
	case s.Pod == nil:
		return &end{}
	case podutil.TerminalPhase(s.Reported.Phase):
		return &end{phase: s.Reported.Phase, reason: s.Reported.Reason, message: s.Reported.Message}
	case podutil.TerminalPhase(s.Pod.Status.Phase):
		return &end{phase: s.Pod.Status.Phase, reason: s.Pod.Status.Reason, message: s.Pod.Status.Message}
	case s.Stop != nil && p.stopKept():
		e := &end{phase: v1.PodFailed, reason: s.Stop.Reason, message: s.Stop.Message, condition: s.Stop.Condition}
		if s.Stop.ByContainers {
			e.phase = ""
		}
		return e
	case s.Admission.Decision == podstate.Rejected && len(s.Observed.Containers) == 0 && len(s.Observed.Sandboxes) == 0:
		return &end{phase: v1.PodFailed, reason: s.Admission.Reason, message: "Pod was rejected: " + s.Admission.Message, rejected: true}
	}
	e := p.deadline() // also of a pod that is deleted: whoever waits for its end is told
	if e == nil && (s.Removed || s.Pod.DeletionTimestamp != nil) {
		e = &end{}
	}
	return e
}

// stopKept says whether the node's own reason may be acted upon. One that was is
// not forgotten when the failure to keep it is.
func (p *planner) stopKept() bool {
	_, failed := p.s.Failures[podstate.Key{Kind: podstate.KeepStop}]
	return !p.s.StopUnkept || failed || !p.s.EndSince.IsZero()
}

// keepStop asks for the node's own reason to be kept, and says whether the pod
// waits for that.
func (p *planner) keepStop() bool {
	if p.s.Stop == nil || !p.s.StopUnkept || p.s.Pod == nil || podutil.TerminalPhase(p.s.Reported.Phase) {
		return false
	}
	p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.KeepStop}, Stop: p.s.Stop})
	return !p.stopKept()
}

// deadline is the end by activeDeadlineSeconds; nil before it, with a wake-up.
func (p *planner) deadline() *end {
	limit := p.s.Pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return nil
	}
	at := p.podStarted().Add(podutil.Seconds(*limit))
	if p.s.Now.Before(at) {
		p.wake(at)
		return nil
	}
	return &end{phase: v1.PodFailed, reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"}
}

// stop plans for a pod that is to end.
func (p *planner) stop() {
	p.cancel(podstate.PullImage, podstate.SetupVolumes, podstate.MakeSandbox, podstate.StartContainer)
	p.killAll()
	// A stop whose container has ended is over for the pod, though the call has
	// not returned.
	if p.anyLive() || p.anyRunning(podstate.StartContainer, podstate.MakeSandbox) {
		p.overdue()
		p.waitForEnd()
		return
	}
	p.out.Stopped = true
	down := p.stopSandboxes()
	if down && !p.s.Cleaned.Volumes && !p.anyRunning(podstate.SetupVolumes) {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.TeardownVolumes}})
	}
	if down && !p.s.Cleaned.Cgroup {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveCgroup}})
	}
	switch {
	case p.gone():
		p.removeAll(down)
	case p.s.Pod.DeletionTimestamp != nil && !p.s.Static && down && p.s.Cleaned.Volumes && p.s.Cleaned.Cgroup:
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.DeleteObject}})
	}
}

// overdue says whether a pod that the node ends for a reason of its own takes
// longer than it may: one and a half of its grace period, 10 s at least.
// Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
func (p *planner) overdue() {
	if p.s.Stop == nil || p.s.EndSince.IsZero() {
		return
	}
	total := p.graceTotal()
	at := p.s.EndSince.Add(max(10*time.Second, podutil.Seconds(total)+podutil.Seconds(total)/2))
	if p.s.Now.Before(at) {
		p.wake(at)
		return
	}
	p.out.Overdue = true
}

// gone says whether nobody wants to hear of the pod any more.
func (p *planner) gone() bool {
	return p.s.Pod == nil || p.s.Removed || p.s.Cleaned.API
}

func (p *planner) anyLive() bool {
	for i := range p.s.Observed.Containers {
		if p.s.Observed.Containers[i].Live() {
			return true
		}
	}
	return false
}

// removeAll removes what is left of a pod that is gone, and says when it is done.
func (p *planner) removeAll(down bool) {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if !p.running(podstate.KillContainer, c.ID) {
			p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: c.ID}, ID: c.ID, Container: c.Name})
		}
	}
	if !down || len(p.s.Observed.Containers) > 0 {
		return
	}
	for i := range p.s.Observed.Sandboxes {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveSandbox, Object: p.s.Observed.Sandboxes[i].ID}, ID: p.s.Observed.Sandboxes[i].ID})
	}
	c := p.s.Cleaned
	if len(p.s.Observed.Sandboxes) > 0 || !c.Volumes || !c.Cgroup {
		return
	}
	if !c.Directories {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveDirectories}})
		return
	}
	p.out.Done = len(p.s.InFlight) == 0
}

// orphanGrace is the grace period of a pod that no source knows: what its
// containers were made with.
func (p *planner) orphanGrace() int64 {
	grace := int64(shortestGrace)
	for i := range p.s.Observed.Containers {
		grace = max(grace, p.s.Observed.Containers[i].GraceSeconds)
	}
	return grace
}

// secondsSince is how many whole seconds have passed since a time.
func (p *planner) secondsSince(at time.Time) int64 {
	return int64(p.s.Now.Sub(at) / time.Second)
}

// graceTotal is the pod's whole grace period in seconds.
func (p *planner) graceTotal() int64 {
	total := p.specGrace()
	if p.s.Pod == nil {
		total = p.orphanGrace()
	} else if g := p.s.Pod.DeletionGracePeriodSeconds; g != nil {
		total = *g
	}
	if p.s.Stop != nil && p.s.Stop.GraceSeconds != nil {
		total = min(total, *p.s.Stop.GraceSeconds)
	}
	return max(total, 1)
}

// graceLeft is what is left of the pod's grace period for what was first asked
// to end at the given time, and the whole of it, in seconds. A second that has
// begun counts as left: a stop that is tried again gives no less than the whole
// period. After a restart of this process it is the whole one again: when a former
// life saw the deletion, and asked, nobody knows; the object's timestamp may be
// long past by then, if the apiserver was away.
func (p *planner) graceLeft(asked time.Time) (left, total int64) {
	total = p.graceTotal()
	since := func(began time.Time) int64 {
		if asked.After(began) {
			began = asked
		}
		return p.secondsSince(began)
	}
	left = total
	if !p.s.EndSince.IsZero() {
		left = total - since(p.s.EndSince)
	}
	if p.s.Pod == nil {
		return max(left, 0), total
	}
	if p.s.DeletionSince.After(p.s.EndSince) && !p.s.EndSince.IsZero() {
		// It was ending already: what the deletion gives counts from the deletion,
		// and makes nothing longer.
		left = total - since(p.s.DeletionSince)
		before := p.s.Shortened
		if len(before) == 0 || before[0].Since.After(p.s.EndSince) {
			before = append([]Period{{p.s.EndSince, p.specGrace()}}, before...)
		}
		for _, b := range before {
			left = min(left, b.Seconds-since(b.Since))
		}
	}
	return max(left, 0), total
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
