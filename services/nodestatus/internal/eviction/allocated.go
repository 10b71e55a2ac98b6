package eviction

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Allocated is a pod that asks for the memory that it was allocated, as its status says.
// Who asks for more by a resize has not got that until the node agrees, which it may never
// do, and would be spared for what it only asked for. The pod itself where both are alike.
func Allocated(pod *v1.Pod) *v1.Pod {
	containers, first := ofStatus(pod.Spec.Containers, pod.Status.ContainerStatuses)
	inits, second := ofStatus(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	whole, third := pod.Spec.Resources, false
	if allocated, told := pod.Status.AllocatedResources[v1.ResourceMemory]; told && whole != nil && asksMemory(whole.Requests) {
		// It has what the pod's sandbox takes in it.
		allocated = allocated.DeepCopy()
		allocated.Sub(pod.Spec.Overhead[v1.ResourceMemory])
		copied := *whole
		copied.Requests, third = withMemory(whole.Requests, v1.ResourceList{v1.ResourceMemory: allocated})
		whole = &copied
	}
	if !first && !second && !third {
		return pod
	}
	out := *pod
	out.Spec.Containers, out.Spec.InitContainers, out.Spec.Resources = containers, inits, whole
	return &out
}

func asksMemory(list v1.ResourceList) bool {
	_, asks := list[v1.ResourceMemory]
	return asks
}

// ofStatus are containers that ask for the memory that their statuses say they were
// allocated; one that was not made yet says nothing of that.
func ofStatus(containers []v1.Container, statuses []v1.ContainerStatus) (out []v1.Container, changed bool) {
	out = slices.Clone(containers)
	for i := range out {
		j := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == out[i].Name })
		if j < 0 || statuses[j].Resources == nil {
			continue
		}
		var another bool
		out[i].Resources.Requests, another = withMemory(out[i].Resources.Requests, statuses[j].AllocatedResources)
		changed = changed || another
	}
	return out, changed
}

// withMemory is what a list has, with the memory of another one.
func withMemory(list, of v1.ResourceList) (out v1.ResourceList, changed bool) {
	has, allocated, told := list[v1.ResourceMemory], of[v1.ResourceMemory], asksMemory(of)
	if asksMemory(list) == told && has.Cmp(allocated) == 0 {
		return list, false
	}
	out = maps.Clone(list)
	switch {
	case !told:
		delete(out, v1.ResourceMemory)
	case out == nil:
		out = v1.ResourceList{v1.ResourceMemory: allocated}
	default:
		out[v1.ResourceMemory] = allocated
	}
	return out, true
}
