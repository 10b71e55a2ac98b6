package resize

import (
	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// Policies are the parts of the node's configuration that rule out some resizes.
type Policies struct {
	// StaticCPU and StaticMemory: the manager's policy is static.
	StaticCPU, StaticMemory bool
	// ExclusiveCPUs and ExclusiveMemory are the gates
	// InPlacePodVerticalScalingExclusive…, which allow it all the same.
	ExclusiveCPUs, ExclusiveMemory bool
	// Swap: containers may swap (LimitedSwap).
	Swap bool
	// NoPodLevel and NoInitContainers: the gate
	// InPlacePodLevelResourcesVerticalScaling or
	// InPlacePodVerticalScalingInitContainers is off.
	NoPodLevel, NoInitContainers bool
}

// The messages of resizes that this node can never carry out.
const (
	messageStatic   = "In-place resize of static-pods is not supported"
	messageCPU      = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
	messageMemory   = "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\""
	messageSwap     = "In-place resize of containers with swap is not supported."
	messagePodLevel = "In-place resize of pod-level resources is not supported: the feature gate InPlacePodLevelResourcesVerticalScaling is off"
	messageInit     = "In-place resize of init containers is not supported: the feature gate InPlacePodVerticalScalingInitContainers is off"
)

// Infeasible says why this node can never give desired, which is a pod that has
// allocated now, what it asks for; empty when it may.
// Source: KEP-1287 and KEP-5419.
func Infeasible(desired, allocated *v1.Pod, static bool, p Policies) string {
	next, now := Of(desired), Of(allocated)
	guaranteed := podutil.QOS(allocated) == v1.PodQOSGuaranteed
	switch {
	case static:
		return messageStatic
	case p.NoPodLevel && !(Allocation{Pod: next.Pod}).Equal(Allocation{Pod: now.Pod}):
		return messagePodLevel
	case p.NoInitContainers && initChanged(desired, next, now):
		return messageInit
	case guaranteed && p.StaticCPU && !p.ExclusiveCPUs && changed(next, now, v1.ResourceCPU):
		return messageCPU
	case guaranteed && p.StaticMemory && !p.ExclusiveMemory && changed(next, now, v1.ResourceMemory):
		return messageMemory
	case p.Swap && swaps(desired, next, now):
		return messageSwap
	}
	return ""
}

// initChanged says whether an ordinary init container is to change.
func initChanged(pod *v1.Pod, next, now Allocation) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if !podutil.Sidecar(c) && !next.Containers[c.Name].equal(now.Containers[c.Name]) {
			return true
		}
	}
	return false
}

// changed says whether a container's or the pod's own amount of it changes.
func changed(next, now Allocation, name v1.ResourceName) bool {
	for c, m := range next.Containers {
		if !m.equalIn(now.Containers[c], name) {
			return true
		}
	}
	var a, b Amounts
	if next.Pod != nil {
		a = *next.Pod
	}
	if now.Pod != nil {
		b = *now.Pod
	}
	return !a.equalIn(b, name)
}

func (m Amounts) equalIn(o Amounts, name v1.ResourceName) bool {
	for _, lists := range [][2]v1.ResourceList{{m.Requests, o.Requests}, {m.Limits, o.Limits}} {
		p, hasP := lists[0][name]
		q, hasQ := lists[1][name]
		if hasP != hasQ || p.Cmp(q) != 0 {
			return false
		}
	}
	return true
}

// swaps says whether a container that may swap, or then may, is to change what it may
// swap while it runs, which follows from its request of memory.
func swaps(pod *v1.Pod, next, now Allocation) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			wanted, had := next.Containers[c.Name], now.Containers[c.Name]
			p, q := wanted.Requests[v1.ResourceMemory], had.Requests[v1.ResourceMemory]
			if p.Cmp(q) != 0 && !Restarts(c, v1.ResourceMemory) && (wanted.maySwap(pod) || had.maySwap(pod)) {
				return true
			}
		}
	}
	return false
}

// maySwap says whether a container of the pod that has this may swap.
func (m Amounts) maySwap(pod *v1.Pod) bool {
	return resources.MaySwap(pod, m.Requests[v1.ResourceMemory], m.Limits[v1.ResourceMemory])
}

// Restarts says whether a container asks to be restarted for a change of a resource.
func Restarts(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}

// Increases says whether desired asks for more cpu or memory than allocated has.
func Increases(desired, allocated *v1.Pod) bool { return asksMore(desired, allocated) }

// Frees says whether desired asks for less cpu or less memory than allocated has: what
// it gives back others may be allocated.
func Frees(desired, allocated *v1.Pod) bool { return asksMore(allocated, desired) }

// asksMore says whether one of two versions of a pod asks for more of something.
func asksMore(one, other *v1.Pod) bool {
	p := podresource.PodRequests(one, podresource.PodResourcesOptions{})
	q := podresource.PodRequests(other, podresource.PodResourcesOptions{})
	for _, name := range names {
		a, b := p[name], q[name]
		if a.Cmp(b) > 0 {
			return true
		}
	}
	return false
}
