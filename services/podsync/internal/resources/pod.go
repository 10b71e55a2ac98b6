package resources

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Total is what a pod as a whole asks for and may use.
type Total struct {
	// MilliCPU and MemoryBytes asked for.
	MilliCPU, MemoryBytes int64
	// CPULimit in thousandths and MemoryLimit in bytes; zero when any container
	// has none.
	CPULimit, MemoryLimit int64
	// HugePages are the limits in bytes by page size name, e.g. 2MB.
	HugePages map[string]int64
}

// ForPod adds up a pod's containers (init containers count with the most that
// runs at once), or takes the pod's own resources where it has them, and its
// overhead.
func ForPod(pod *v1.Pod) Total {
	t := Total{HugePages: map[string]int64{}}
	t.MilliCPU = total(pod, func(c *v1.Container) int64 { q := Request(c, v1.ResourceCPU); return q.MilliValue() })
	t.MemoryBytes = total(pod, func(c *v1.Container) int64 { q := Request(c, v1.ResourceMemory); return q.Value() })
	if allHave(pod, v1.ResourceCPU) {
		t.CPULimit = total(pod, func(c *v1.Container) int64 { q := c.Resources.Limits[v1.ResourceCPU]; return q.MilliValue() })
	}
	if allHave(pod, v1.ResourceMemory) {
		t.MemoryLimit = total(pod, func(c *v1.Container) int64 { q := c.Resources.Limits[v1.ResourceMemory]; return q.Value() })
	}
	t.own(pod.Spec.Resources)
	t.hugePages(pod)
	cpu, memory := pod.Spec.Overhead[v1.ResourceCPU], pod.Spec.Overhead[v1.ResourceMemory]
	t.MilliCPU += cpu.MilliValue()
	t.MemoryBytes += memory.Value()
	if t.CPULimit > 0 {
		t.CPULimit += cpu.MilliValue()
	}
	if t.MemoryLimit > 0 {
		t.MemoryLimit += memory.Value()
	}
	return t
}

// own lets the pod's own resources stand for its containers' sum.
func (t *Total) own(r *v1.ResourceRequirements) {
	if r == nil {
		return
	}
	limitCPU, hasLimitCPU := r.Limits[v1.ResourceCPU]
	limitMemory, hasLimitMemory := r.Limits[v1.ResourceMemory]
	if hasLimitCPU {
		t.CPULimit = limitCPU.MilliValue()
	}
	if hasLimitMemory {
		t.MemoryLimit = limitMemory.Value()
	}
	if q, ok := r.Requests[v1.ResourceCPU]; ok {
		t.MilliCPU = q.MilliValue()
	} else if hasLimitCPU && t.MilliCPU == 0 {
		t.MilliCPU = limitCPU.MilliValue()
	}
	if q, ok := r.Requests[v1.ResourceMemory]; ok {
		t.MemoryBytes = q.Value()
	} else if hasLimitMemory && t.MemoryBytes == 0 {
		t.MemoryBytes = limitMemory.Value()
	}
}

func (t *Total) hugePages(pod *v1.Pod) {
	names := map[v1.ResourceName]bool{}
	each(pod, func(c *v1.Container) {
		for name := range c.Resources.Limits {
			names[name] = true
		}
	})
	for name := range names {
		if size, err := PageSize(name); err == nil {
			t.HugePages[size] = total(pod, func(c *v1.Container) int64 { q := c.Resources.Limits[name]; return q.Value() })
		}
	}
	if pod.Spec.Resources == nil {
		return
	}
	for name, q := range pod.Spec.Resources.Limits {
		if size, err := PageSize(name); err == nil {
			t.HugePages[size] = q.Value()
		}
	}
}

// HugePages are the bytes of huge pages that a container may have, by page size
// name: its own limits, and of sizes for which it has none the pod's.
// Source: KEP-2837.
func HugePages(pod *v1.Pod, c *v1.Container) map[string]uint64 {
	limits := map[string]uint64{}
	take := func(list v1.ResourceList) {
		for name, q := range list {
			if size, err := PageSize(name); err == nil {
				limits[size] = uint64(q.Value())
			}
		}
	}
	if pod.Spec.Resources != nil {
		take(pod.Spec.Resources.Limits)
	}
	take(c.Resources.Limits)
	return limits
}

// each calls f with the pod's init and regular containers.
func each(pod *v1.Pod, f func(*v1.Container)) {
	for kind, c := range podutil.Containers(pod) {
		if kind != podutil.Ephemeral {
			f(c)
		}
	}
}

// total is the most that runs at once: all regular containers with the
// sidecars, or one init container with the sidecars before it.
func total(pod *v1.Pod, of func(*v1.Container) int64) int64 {
	var sum, sidecars, most int64
	for i := range pod.Spec.Containers {
		sum += of(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podutil.Sidecar(c) {
			sidecars += of(c)
			most = max(most, sidecars)
		} else {
			most = max(most, sidecars+of(c))
		}
	}
	return max(sum+sidecars, most)
}

// allHave says whether every container has a limit, so that their sum is one.
func allHave(pod *v1.Pod, name v1.ResourceName) bool {
	all := true
	each(pod, func(c *v1.Container) {
		if q := c.Resources.Limits[name]; q.IsZero() {
			all = false
		}
	})
	return all
}
