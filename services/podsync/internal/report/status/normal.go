package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/status/equal"
)

// ownedConditions are the condition types that only the node writes. Any other
// type may have another owner.
var ownedConditions = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting,
}

// terminationMessages bounds what all containers of a pod may say at their end.
const terminationMessages = 12288

func owned(t v1.PodConditionType) bool { return slices.Contains(ownedConditions, t) }

// normalize returns a copy of st as the apiserver would give it back: times in
// whole seconds, messages cut, and only fields that the node owns. Conditions
// of foreign types stay only when known, the object's status, has not the same.
func normalize(st v1.PodStatus, known v1.PodStatus) v1.PodStatus {
	out := *st.DeepCopy()
	out.NominatedNodeName = ""
	out.ResourceClaimStatuses = nil
	out.ExtendedResourceClaimStatus = nil
	out.NodeAllocatableResourceClaimStatuses = nil
	out.Resize = ""
	out.StartTime = wholeSecondsPointer(out.StartTime)
	others := podutil.ConditionsByType(known.Conditions)
	out.Conditions = slices.DeleteFunc(out.Conditions, func(c v1.PodCondition) bool {
		other := others.Find(c.Type)
		return !owned(c.Type) && other != nil && sameCondition(c, *other)
	})
	for i := range out.Conditions {
		out.Conditions[i].LastTransitionTime = wholeSeconds(out.Conditions[i].LastTransitionTime)
		out.Conditions[i].LastProbeTime = metav1.Time{}
	}
	count := len(out.InitContainerStatuses) + len(out.ContainerStatuses) + len(out.EphemeralContainerStatuses)
	for _, list := range [][]v1.ContainerStatus{out.InitContainerStatuses, out.ContainerStatuses, out.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, terminationMessages/count)
			normalizeState(&list[i].LastTerminationState, terminationMessages/count)
		}
	}
	fit(&out)
	return out
}

func normalizeState(state *v1.ContainerState, limit int) {
	if state.Running != nil {
		state.Running.StartedAt = wholeSeconds(state.Running.StartedAt)
	}
	if t := state.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = wholeSeconds(t.StartedAt), wholeSeconds(t.FinishedAt)
		t.Message = cut(t.Message, limit)
	}
}

func wholeSeconds(t metav1.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

func wholeSecondsPointer(t *metav1.Time) *metav1.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	out := wholeSeconds(*t)
	return &out
}

// sameCondition compares what a condition says, not when.
func sameCondition(a, b v1.PodCondition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
}

// stamp gives the conditions of desired their transition times: that of known
// while the status has not changed, else what the planner said, else now. A
// start time that the apiserver has stands, and so does the address of a pod
// that has ended; and what runs is not pending again: of a static pod, this
// process may not know when an earlier one began with it, that it ran, nor the
// address of a sandbox that was down by then. One that goes through its init
// containers again, for a new sandbox, is pending.
func stamp(desired *v1.PodStatus, known v1.PodStatus, now time.Time) {
	if desired.StartTime != nil && known.StartTime != nil {
		desired.StartTime = known.StartTime
	}
	initialized := podutil.Condition(desired.Conditions, v1.PodInitialized)
	if known.Phase == v1.PodRunning && desired.Phase == v1.PodPending && (initialized == nil || initialized.Status != v1.ConditionFalse) {
		desired.Phase = known.Phase
	}
	if podutil.TerminalPhase(desired.Phase) && desired.PodIP == "" {
		desired.PodIP, desired.PodIPs = known.PodIP, known.PodIPs
	}
	// A request under way still reads the old slice.
	desired.Conditions = slices.Clone(desired.Conditions)
	had := podutil.ConditionsByType(known.Conditions)
	for i := range desired.Conditions {
		c := &desired.Conditions[i]
		if old := had.Find(c.Type); old != nil && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		} else if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = wholeSeconds(metav1.Time{Time: now})
		}
	}
}

// withOthers are the conditions that were sent, and those of other types that the object
// has beside them.
func withOthers(sent, object []v1.PodCondition) []v1.PodCondition {
	all := slices.Clone(sent)
	mine, others := podutil.ConditionsByType(sent), podutil.ConditionsByType(object)
	for i := range object {
		c := &object[i]
		if mine.Find(c.Type) == nil && others.Find(c.Type) == c {
			all = append(all, *c)
		}
	}
	return all
}

// same says whether the apiserver, which has known, needs nothing to show
// desired. Both are normalized; foreign conditions of known do not count.
func same(desired, known v1.PodStatus) bool {
	had := podutil.ConditionsByType(known.Conditions)
	for _, c := range desired.Conditions {
		old := had.Find(c.Type)
		if old == nil || !sameCondition(c, *old) || !c.LastTransitionTime.Equal(&old.LastTransitionTime) {
			return false
		}
	}
	for _, c := range known.Conditions {
		if owned(c.Type) && podutil.Condition(desired.Conditions, c.Type) == nil {
			return false
		}
	}
	desired.Conditions, known.Conditions = nil, nil
	if desired.StartTime == nil {
		known.StartTime = nil // never taken back
	}
	if desired.QOSClass == "" {
		known.QOSClass = ""
	}
	return equal.Equal(desired, known)
}

// urgent says whether anybody may act on the difference between two statuses:
// a phase, a readiness, a container's state, an address of a ready pod, an end.
// The rest (a first "Pending", a sandbox that is up) may wait for what follows it.
func urgent(desired, known v1.PodStatus) bool {
	if over(desired, known) || same(withoutGeneration(desired), withoutGeneration(known)) {
		return false
	}
	if desired.Phase != known.Phase && !(known.Phase == "" && desired.Phase == v1.PodPending) {
		return true
	}
	if desired.Phase != v1.PodPending || desired.Reason != known.Reason {
		return true
	}
	for _, c := range desired.Conditions {
		if !owned(c.Type) {
			return true
		}
	}
	for _, list := range [][]v1.ContainerStatus{desired.InitContainerStatuses, desired.ContainerStatuses, desired.EphemeralContainerStatuses} {
		for _, c := range list {
			if !beginning(c) {
				return true
			}
		}
	}
	return false
}

// withoutGeneration is a status without the generation that it was computed for.
func withoutGeneration(st v1.PodStatus) v1.PodStatus {
	st.ObservedGeneration = 0
	st.Conditions = slices.Clone(st.Conditions)
	for i := range st.Conditions {
		st.Conditions[i].ObservedGeneration = 0
	}
	return st
}

// over tells that the apiserver knows the pod's end and how each container
// ended: what still changes, such as its sandbox going down, is of no use to
// anybody who waits for it. The phase alone does not tell: others write it too,
// of pods whose containers run.
func over(desired, known v1.PodStatus) bool {
	return desired.Phase == known.Phase && podutil.TerminalPhase(known.Phase) && equal.Equal(onlyContainers(desired), onlyContainers(known))
}

// onlyContainers is a status without anything but its containers.
func onlyContainers(st v1.PodStatus) v1.PodStatus {
	return v1.PodStatus{
		ContainerStatuses: st.ContainerStatuses, InitContainerStatuses: st.InitContainerStatuses,
		EphemeralContainerStatuses: st.EphemeralContainerStatuses,
	}
}

// beginning is the state of a container of which nothing happened yet.
func beginning(c v1.ContainerStatus) bool {
	return c.State.Running == nil && c.State.Terminated == nil && c.RestartCount == 0 && c.LastTerminationState.Terminated == nil &&
		(c.State.Waiting == nil || c.State.Waiting.Reason == "ContainerCreating" || c.State.Waiting.Reason == "PodInitializing" || c.State.Waiting.Reason == "")
}
