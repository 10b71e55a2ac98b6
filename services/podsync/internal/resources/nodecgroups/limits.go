package nodecgroups

import (
	"errors"
	"fmt"
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
// An error says that nothing is left for them.
func (c *Cgroups) limits() (cgroup.Limits, error) {
	has := c.deps.Capacity()
	limits := cgroup.Limits{
		Reserved: c.cfg.Enforced, Tiers: c.tiers(has.Memory().Value() - c.cfg.ReservedMemoryBytes), MilliCPU: has.Cpu().MilliValue(),
	}
	if !c.cfg.EnforcePods {
		return limits, nil
	}
	if limits.MilliCPU > 0 { // Where nothing is left they have next to nothing of it.
		limits.MilliCPU = max(limits.MilliCPU-c.cfg.ReservedMilliCPU, 1)
	}
	var memory, processes error
	limits.MemoryBytes, memory = left("memory", "bytes", has.Memory().Value(), c.cfg.ReservedMemoryBytes)
	limits.PIDs, processes = left("pid", "processes", capacity.Processes(), c.cfg.ReservedPIDs)
	limits.HugePages = hugePages(has)
	return limits, errors.Join(memory, processes)
}

// left is what of a resource is left for pods; 0 where nobody knows how much there is.
// Where it is nothing a limit of 0 would be none at all.
func left(name, unit string, has, reserved int64) (int64, error) {
	switch {
	case has <= 0:
		return 0, nil
	case reserved >= has:
		return 0, fmt.Errorf("%s: %d of %d %s are reserved, and nothing is left for pods; lower kubeReserved or systemReserved, or take pods out of enforceNodeAllocatable", name, reserved, has, unit)
	}
	return has - reserved, nil
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
