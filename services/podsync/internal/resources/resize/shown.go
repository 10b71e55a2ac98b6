package resize

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Shown is what a pod's status says that it was allocated; false when it does
// not say it of every container that asks for cpu or memory. A status tells the
// requests. Limits are those in effect while a resize waits, and else the spec's.
// While one is carried out, those in effect may be the ones before it: a limit
// is then the request's where the spec wants both alike, and never below it.
func Shown(pod *v1.Pod) (Allocation, bool) {
	st := &pod.Status
	is := func(t v1.PodConditionType) bool {
		c := podutil.Condition(st.Conditions, t)
		return c != nil && c.Status == v1.ConditionTrue
	}
	waits, under := is(v1.PodResizePending), is(v1.PodResizeInProgress)
	a := Of(pod)
	told := false
	statuses, containers := podutil.TellsOf(st), podutil.ContainersByName(pod)
	for name, asked := range a.Containers {
		cs := statuses.Of(name)
		if len(asked.Requests) == 0 || cs == nil && ordinaryInit(containers.Of(name)) {
			continue // says nothing, or cannot be resized
		}
		if cs == nil {
			return Allocation{}, false
		}
		m, ok := asked.shown(cs.AllocatedResources, cs.Resources, waits, under)
		if !ok {
			return Allocation{}, false
		}
		a.Containers[name], told = m, true
	}
	if a.Pod != nil && len(a.Pod.Requests) > 0 {
		m, ok := a.Pod.shown(st.AllocatedResources, st.Resources, waits, under)
		if !ok {
			return Allocation{}, false
		}
		a.Pod, told = &m, true
	}
	return a, told
}

// shown are the amounts that a status tells, of those that were asked for.
func (m Amounts) shown(allocated v1.ResourceList, inEffect *v1.ResourceRequirements, waits, under bool) (Amounts, bool) {
	for name := range m.Requests {
		if _, ok := allocated[name]; !ok {
			return Amounts{}, false
		}
	}
	out := Amounts{Requests: pick(allocated), Limits: m.Limits}
	if inEffect == nil || !waits && same(out.Requests, m.Requests) {
		return out, true
	}
	out.Limits = pick(inEffect.Limits)
	if under {
		m.followRequests(out)
	}
	return out, true
}

// followRequests mends the limits in effect of what was allocated but is not
// carried out yet.
func (m Amounts) followRequests(out Amounts) {
	for name, limit := range out.Limits {
		request, ok := out.Requests[name]
		if !ok {
			continue
		}
		wanted, hasLimit := m.Limits[name]
		if alike := hasLimit && wanted.Cmp(m.Requests[name]) == 0; alike || limit.Cmp(request) < 0 {
			out.Limits[name] = request
		}
	}
}

// ordinaryInit says whether a container is an init container that is no sidecar.
func ordinaryInit(c *v1.Container, kind podutil.Kind) bool {
	return kind == podutil.Init && !podutil.Sidecar(c)
}
