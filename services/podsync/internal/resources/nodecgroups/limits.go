package nodecgroups

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/host/capacity"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// limits are what all pods together may use: the machine without what is
// reserved (what eviction keeps free is not taken off), and what those may use
// for whom it is reserved.
func (c *Cgroups) limits() cgroup.Limits {
	limits := cgroup.Limits{Reserved: c.cfg.Enforced}
	if !c.cfg.EnforcePods {
		return limits
	}
	has := c.deps.Capacity()
	limits.MilliCPU = has.Cpu().MilliValue() - c.cfg.ReservedMilliCPU
	limits.MemoryBytes = has.Memory().Value() - c.cfg.ReservedMemoryBytes
	if most := capacity.Processes(); most > 0 {
		limits.PIDs = most - c.cfg.ReservedPIDs
	}
	limits.HugePages = hugePages(has)
	return limits
}

// hugePages are the bytes of each page size, by size.
func hugePages(list v1.ResourceList) map[int64]int64 {
	out := map[int64]int64{}
	for name, q := range list {
		if text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			if size, err := resource.ParseQuantity(text); err == nil {
				out[size.Value()] = q.Value()
			}
		}
	}
	return out
}
