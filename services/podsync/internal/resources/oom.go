package resources

import (
	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const (
	oomGuaranteed = -997
	oomBestEffort = 1000
	nodeCritical  = "system-node-critical"
)

// OOMScoreAdj is how willingly the kernel kills the container when memory runs
// out; capacity is the node's memory in bytes, zero when not known.
func OOMScoreAdj(pod *v1.Pod, c *v1.Container, capacity int64) int64 {
	if podutil.Critical(pod) && pod.Spec.PriorityClassName == nodeCritical {
		return oomGuaranteed
	}
	switch podutil.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	extra := spare(pod)
	score := burstable(c, extra, capacity)
	if own, kind := podutil.Container(pod, c.Name); kind == podutil.Init && podutil.Sidecar(own) {
		// No higher than that of the container which asks for least: one that takes more
		// than it asked for is not to outlive those that it serves.
		serves := int64(0)
		for i := range pod.Spec.Containers {
			serves = max(serves, burstable(&pod.Spec.Containers[i], extra, capacity))
		}
		score = min(score, serves)
	}
	return score
}

// burstable is lower the more of the node's memory the container asked for, together
// with its part of what the pod asks for beside.
func burstable(c *v1.Container, extra, capacity int64) int64 {
	q := c.Resources.Requests[v1.ResourceMemory]
	request := q.Value() + extra
	score := int64(oomBestEffort)
	if capacity > 0 {
		score -= oomBestEffort * request / capacity
	}
	return min(max(score, oomBestEffort+oomGuaranteed), oomBestEffort-1)
}

// spare is a container's part of what the pod asks for beyond its containers; init
// containers have one, too.
// Source: KEP-2837, OOM score adjustment.
func spare(pod *v1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	q := pod.Spec.Resources.Requests[v1.ResourceMemory]
	own := podresource.AggregateContainerRequests(pod, podresource.PodResourcesOptions{})
	rest, n := q.Value()-own.Memory().Value(), int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	if rest <= 0 || n == 0 {
		return 0
	}
	return rest / n
}
