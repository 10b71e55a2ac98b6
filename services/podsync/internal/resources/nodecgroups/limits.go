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
// for whom it is reserved. Without a limit they have the shares of the whole machine: with
// those that the kernel gives a cgroup all of them had as much as one other.
func (c *Cgroups) limits() cgroup.Limits {
	has := c.deps.Capacity()
	limits := cgroup.Limits{
		Reserved: c.cfg.Enforced, Tiers: c.tiers(has.Memory().Value() - c.cfg.ReservedMemoryBytes), MilliCPU: has.Cpu().MilliValue(),
	}
	if !c.cfg.EnforcePods {
		return limits
	}
	limits.MilliCPU -= c.cfg.ReservedMilliCPU
	limits.MemoryBytes = has.Memory().Value() - c.cfg.ReservedMemoryBytes
	if most := capacity.Processes(); most > 0 {
		limits.PIDs = most - c.cfg.ReservedPIDs
	}
	limits.HugePages = hugePages(has)
	return limits
}

// tiers is what classes of pods have of memory, of which so much is not reserved for
// others; nil while that is not known.
// Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1 (qosReserved), KEP-2570.
func (c *Cgroups) tiers(allocatable int64) *cgroup.Tiers {
	out := &cgroup.Tiers{}
	percent, protects := c.cfg.QOSReserved, c.cfg.MemoryQoS.On && c.cfg.MemoryQoS.Tiered
	if percent == nil && !protects {
		return out
	}
	guaranteed, burstable, known := c.deps.Asked()
	if !known {
		return nil
	}
	if protects { // What is above has to be protected for what is below to be.
		out.Min, out.Low = guaranteed+burstable, burstable
	}
	if percent != nil && allocatable > 0 {
		// Where nothing is left a class has next to nothing, and not no limit.
		out.Burstable = max(allocatable-guaranteed**percent/100, 1<<20)
		out.BestEffort = max(out.Burstable-burstable**percent/100, 1<<20)
	}
	return out
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
