package resources

import (
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// MaySwap says whether a container of the pod may swap where containers may, with this
// request and limit of memory. Pods that are critical, guaranteed or best effort do not,
// nor do containers that ask for no memory, or for as much as they may use.
// Source: KEP-2400.
func MaySwap(pod *v1.Pod, request, limit resource.Quantity) bool {
	return podutil.QOS(pod) == v1.PodQOSBurstable && !podutil.Critical(pod) && !request.IsZero() && request.Cmp(limit) != 0
}

// Swap is how many bytes a container may swap where containers may: its part of
// the node's swap is its part of the node's memory, in whole pages.
// Source: KEP-2400.
func Swap(pod *v1.Pod, c *v1.Container, nodeMemory, nodeSwap int64) int64 {
	request, limit := c.Resources.Requests[v1.ResourceMemory], c.Resources.Limits[v1.ResourceMemory]
	if !MaySwap(pod, request, limit) || nodeMemory <= 0 || nodeSwap <= 0 {
		return 0
	}
	bytes := int64(float64(request.Value()) / float64(nodeMemory) * float64(nodeSwap))
	page := int64(os.Getpagesize())
	return bytes / page * page
}
