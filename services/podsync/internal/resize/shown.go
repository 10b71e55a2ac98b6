package resize

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Shown is what a pod's status says that it was allocated; false when it does
// not say it of every container that asks for cpu or memory. A status tells the
// requests. Limits are those in effect while a resize waits, and else the spec's.
func Shown(pod *v1.Pod) (Allocation, bool) {
	st := &pod.Status
	waits := slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodResizePending && c.Status == v1.ConditionTrue
	})
	a := Of(pod)
	told := false
	for name, asked := range a.Containers {
		cs := shownOf(st, name)
		if len(asked.Requests) == 0 || cs == nil && ordinaryInit(pod, name) {
			continue // says nothing, or cannot be resized
		}
		if cs == nil {
			return Allocation{}, false
		}
		m, ok := asked.shown(cs.AllocatedResources, cs.Resources, waits)
		if !ok {
			return Allocation{}, false
		}
		a.Containers[name], told = m, true
	}
	if a.Pod != nil && len(a.Pod.Requests) > 0 {
		m, ok := a.Pod.shown(st.AllocatedResources, st.Resources, waits)
		if !ok {
			return Allocation{}, false
		}
		a.Pod, told = &m, true
	}
	return a, told
}

// shown are the amounts that a status tells, of those that were asked for.
func (m Amounts) shown(allocated v1.ResourceList, inEffect *v1.ResourceRequirements, waits bool) (Amounts, bool) {
	for name := range m.Requests {
		if _, ok := allocated[name]; !ok {
			return Amounts{}, false
		}
	}
	out := Amounts{Requests: pick(allocated), Limits: m.Limits}
	if inEffect != nil && (waits || !same(out.Requests, m.Requests)) {
		out.Limits = pick(inEffect.Limits)
	}
	return out, true
}

func shownOf(st *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// ordinaryInit says whether a container is an init container that is no sidecar.
func ordinaryInit(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
		}
	}
	return false
}
