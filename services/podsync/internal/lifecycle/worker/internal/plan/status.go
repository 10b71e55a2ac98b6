package plan

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// status computes the pod's status.
func (p *planner) status() v1.PodStatus {
	if p.s.Pod == nil {
		return *p.s.Reported.DeepCopy()
	}
	if p.settled() {
		return p.lastTold()
	}
	st := v1.PodStatus{
		ObservedGeneration:    p.s.Pod.Generation,
		QOSClass:              podutil.QOS(p.s.Pod),
		NominatedNodeName:     p.s.Pod.Status.NominatedNodeName,
		ResourceClaimStatuses: p.s.Pod.Status.ResourceClaimStatuses,
	}
	began := metav1.NewTime(p.podStarted())
	st.StartTime = &began
	p.addresses(&st)
	if p.end == nil || !p.end.rejected {
		p.containerStatuses(&st)
	}
	p.setPhase(&st)
	if podutil.TerminalPhase(st.Phase) {
		capMessages(&st)
	}
	p.conditions(&st)
	p.podResources(&st)
	return st
}

// settled says whether the last status has been told: it does not change any more.
func (p *planner) settled() bool {
	if !podutil.TerminalPhase(p.s.Reported.Phase) || !p.out.Stopped {
		return false
	}
	for _, list := range [][]v1.ContainerStatus{p.s.Reported.InitContainerStatuses, p.s.Reported.ContainerStatuses} {
		for i := range list {
			// What was not reached, as an init container before it did not end well, waits for good.
			if st := &list[i].State; st.Terminated == nil && st.Waiting == nil {
				return false
			}
		}
	}
	return true
}

// lastTold is the status that does not change any more; what others say of the pod
// still may, and is theirs.
func (p *planner) lastTold() v1.PodStatus {
	st := *p.s.Reported.DeepCopy()
	st.Conditions = nil
	p.foreign(&st)
	for i := range p.s.Reported.Conditions {
		if c := p.s.Reported.Conditions[i]; owned[c.Type] {
			st.Conditions = append(st.Conditions, c)
		}
	}
	return st
}

// setPhase sets phase, reason and message. A pod takes its last phase only
// when nothing of it runs any more.
func (p *planner) setPhase(st *v1.PodStatus) {
	st.Phase = p.phase(p.out.Stopped)
	switch {
	case p.end == nil:
		if st.Phase == p.s.Reported.Phase {
			st.Reason, st.Message = p.s.Reported.Reason, p.s.Reported.Message
		}
		if podutil.TerminalPhase(st.Phase) { // not before what still runs has ended
			st.Phase = p.phaseSoFar()
		}
	case podutil.TerminalPhase(p.s.Reported.Phase):
		st.Phase, st.Reason, st.Message = p.s.Reported.Phase, p.s.Reported.Reason, p.s.Reported.Message
	case podutil.TerminalPhase(p.s.Pod.Status.Phase):
		// Somebody else has said that it ended. That is not taken back, though
		// its containers are still being stopped.
		st.Phase, st.Reason, st.Message = p.s.Pod.Status.Phase, p.s.Pod.Status.Reason, p.s.Pod.Status.Message
	case !p.out.Stopped:
		if podutil.TerminalPhase(st.Phase) {
			st.Phase = p.phaseSoFar()
		}
	case p.end.phase != "":
		st.Phase, st.Reason, st.Message = p.end.phase, p.end.reason, p.end.message
	default:
		if !podutil.TerminalPhase(st.Phase) { // it ended before its containers could
			st.Phase = v1.PodFailed
		}
		if st.Phase == v1.PodFailed {
			st.Reason, st.Message = p.end.reason, p.end.message
		}
	}
	st.Phase = p.notBack(st.Phase)
}

// notBack is the phase that a pod takes instead of one that it has been in: nothing moves
// it back but the loss of its sandbox.
func (p *planner) notBack(phase v1.PodPhase) v1.PodPhase {
	switch {
	case podutil.TerminalPhase(phase):
	case p.initializesAnew():
		return v1.PodPending
	case p.end == nil && p.sandbox == nil && p.hasInit() && p.s.Reported.Phase == v1.PodPending:
		return v1.PodPending // its init containers run again, in the next one
	case p.s.Reported.Phase == v1.PodRunning:
		return v1.PodRunning
	}
	return phase
}

// phaseSoFar is the phase of a pod that is about to end but has not.
func (p *planner) phaseSoFar() v1.PodPhase {
	switch {
	case p.s.Reported.Phase != "":
		return p.s.Reported.Phase
	case p.tally().regularStarted:
		return v1.PodRunning
	default:
		return v1.PodPending
	}
}

// containerStatuses fills in the three lists: init in the spec's order, the
// others by name.
func (p *planner) containerStatuses(st *v1.PodStatus) {
	inits, regulars := len(p.s.Pod.Spec.InitContainers), len(p.s.Pod.Spec.Containers)
	st.InitContainerStatuses = p.statusesOf(p.views[:inits])
	if p.out.Stopped {
		endInits(st.InitContainerStatuses)
	}
	st.ContainerStatuses = p.statusesOf(byName(p.views[inits : inits+regulars]))
	st.EphemeralContainerStatuses = p.statusesOf(byName(p.views[inits+regulars:]))
}

// statusesOf are the statuses of some containers of one list; nil for none.
func (p *planner) statusesOf(views []*view) []v1.ContainerStatus {
	list := slices.Grow([]v1.ContainerStatus(nil), len(views))
	for _, v := range views {
		cs := p.containerStatus(v)
		p.keepEnd(v, &cs)
		switch {
		case v.class == ordinaryInit && cs.State.Terminated == nil:
			cs.Ready = false // it is to run again, for another sandbox
		case v.class == ephemeral:
			cs.Started = nil // it has no probes
		}
		list = append(list, cs)
	}
	return list
}

// endInits shows as failed what a pod that has ended left waiting of its init containers, up
// to the last of them that was ever begun, and the first one in any case. Those after it
// were never reached, and wait for ever.
func endInits(list []v1.ContainerStatus) {
	begun := min(1, len(list))
	for i := range list {
		if list[i].State.Waiting == nil || list[i].LastTerminationState.Terminated != nil {
			begun = i + 1
		}
	}
	for i := range list[:begun] {
		if list[i].State.Terminated == nil {
			list[i].State = v1.ContainerState{Terminated: neverSeen()}
		}
	}
}

// byName are the views in the order of their names.
func byName(views []*view) []*view {
	compare := func(a, b *view) int { return strings.Compare(a.spec.Name, b.spec.Name) }
	if slices.IsSortedFunc(views, compare) {
		return views
	}
	return slices.SortedStableFunc(slices.Values(views), compare)
}

// allMessages is the room that the termination messages of a pod share, in bytes.
const allMessages = 12288

// capMessages cuts the termination messages of a pod so that they fit together.
func capMessages(st *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
	n := 0
	for _, l := range lists {
		n += len(l)
	}
	if n == 0 {
		return
	}
	limit := allMessages / n
	for _, l := range lists {
		for i := range l {
			if t := l[i].State.Terminated; t != nil && len(t.Message) > limit {
				t.Message = strings.ToValidUTF8(t.Message[:limit], "") // no half of a character
			}
		}
	}
}
