package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

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
		p.waitForStop()
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
	p.out.Freed = down && p.s.Cleaned.Volumes && p.s.Cleaned.Cgroup
	switch {
	case p.gone():
		p.removeAll(down)
	case !p.s.Static && p.out.Freed:
		if p.s.Pod.DeletionTimestamp != nil {
			p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.DeleteObject}})
		}
		if p.s.Reclaim && p.mayForget() {
			p.removeDead(down)
		}
	}
}

// overdue says whether a pod that the node ends for a reason of its own takes
// longer than it may: one and a half of its grace period, 10 s at least.
// Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
func (p *planner) overdue() {
	if p.s.Stop == nil || p.s.EndSince.IsZero() {
		return
	}
	total, began := p.graceTotal(), p.s.EndSince
	if n := len(p.s.StopPeriods); n > 0 && p.s.StopPeriods[n-1].Since.After(began) {
		began = p.s.StopPeriods[n-1].Since
	}
	at := began.Add(max(10*time.Second, podutil.Seconds(total)+podutil.Seconds(total)/2))
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

// cannotRemove says whether the runtime, or the disk, has kept something of the pod from
// being removed for a while. Who returns does not wait for that: it begins beside it, and
// what has ended counts as its own, as with a kubelet. A runtime that is away comes back.
func (p *planner) cannotRemove() bool {
	for k, f := range p.s.Failures {
		switch k.Kind {
		case podstate.RemoveContainer, podstate.RemoveSandbox, podstate.RemoveDirectories:
			if f.Count >= triesToRemove && !f.Away {
				return true
			}
		}
	}
	return false
}

// triesToRemove is how often it is tried to remove something of a pod that returns,
// within 8 s: a filesystem may be busy for a moment.
const triesToRemove = 5

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
	if p.s.Returns && p.out.Freed && p.cannotRemove() {
		p.out.Done = len(p.s.InFlight) == 0
		return
	}
	p.removeDead(down)
	c := p.s.Cleaned
	if !down || len(p.s.Observed.Containers) > 0 || len(p.s.Observed.Sandboxes) > 0 || !c.Volumes || !c.Cgroup {
		return
	}
	if !c.Directories {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveDirectories}})
		return
	}
	p.out.Done = len(p.s.InFlight) == 0
}
