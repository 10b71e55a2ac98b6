package resources

import (
	"math"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Files of cgroup v2 with which memory is protected, and its use slowed down.
const (
	memoryMin  = "memory.min"
	memoryLow  = "memory.low"
	memoryHigh = "memory.high"
)

// MemoryQoS says how the kernel treats the memory of pods, on cgroup v2 only.
// Source: KEP-2570, as of 1.36.
type MemoryQoS struct {
	// On is the gate MemoryQoS; without it nothing is said.
	On bool
	// Tiered protects what was asked for (memoryReservationPolicy TieredReservation): of
	// guaranteed pods in any case, of burstable ones as long as others have something to
	// give.
	Tiered bool
	// Factor is memoryThrottlingFactor: from which part of what is between a container's
	// request and its limit on it is slowed down.
	Factor float64
}

// Container is what the runtime is told of a container, by the files of cgroup v2;
// allocatable is the node's memory without what is reserved, zero when not known. Nil
// without the gate.
func (q MemoryQoS) Container(pod *v1.Pod, c *v1.Container, allocatable int64) map[string]string {
	if !q.On {
		return nil
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	out := map[string]string{}
	switch {
	case request == 0 || !q.Tiered:
		out[memoryMin], out[memoryLow] = "0", "0"
	case podutil.QOS(pod) == v1.PodQOSGuaranteed:
		out[memoryMin] = number(request)
	default:
		out[memoryLow] = number(request)
	}
	if high := q.high(request, limit, allocatable); high > request {
		out[memoryHigh] = number(high)
	}
	return out
}

// Resized is Container of one that runs: what it had and is to have no longer goes.
func (q MemoryQoS) Resized(pod *v1.Pod, c *v1.Container, allocatable int64) map[string]string {
	out := q.Container(pod, c, allocatable)
	if _, slowed := out[memoryHigh]; q.On && !slowed {
		out[memoryHigh] = "max"
	}
	return out
}

// high is from where on a container is slowed down, whole pages; zero for never.
func (q MemoryQoS) high(request, limit, allocatable int64) int64 {
	most := limit
	if limit == 0 {
		most = allocatable
	}
	if request == limit || most <= 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	at := float64(request) + float64(most-request)*q.Factor
	return int64(math.Floor(at/float64(page))) * page
}

// Pod is what of a pod's memory is protected in any case, and as long as others have
// something to give.
func (q MemoryQoS) Pod(pod *v1.Pod) (minimum, low int64) {
	if !q.On || !q.Tiered {
		return 0, 0
	}
	switch asked := ForPod(pod).MemoryBytes; podutil.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return asked, 0
	case v1.PodQOSBurstable:
		return 0, asked
	default:
		return 0, 0
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// MemoryAsked is what the guaranteed and the burstable of some pods ask for together, in
// bytes.
func MemoryAsked(pods []*v1.Pod) (guaranteed, burstable int64) {
	for _, pod := range pods {
		switch podutil.QOS(pod) {
		case v1.PodQOSGuaranteed:
			guaranteed += ForPod(pod).MemoryBytes
		case v1.PodQOSBurstable:
			burstable += ForPod(pod).MemoryBytes
		}
	}
	return guaranteed, burstable
}
