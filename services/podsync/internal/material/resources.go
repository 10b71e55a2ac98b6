package material

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/material/resources"
)

// containerResources maps a container's requests and limits.
func (b *Builder) containerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	b.machine.look()
	request, limit := resources.Request(c, v1.ResourceCPU), c.Resources.Limits[v1.ResourceCPU]
	memory := c.Resources.Limits[v1.ResourceMemory]
	capacity := b.deps.Capacity()
	out := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(resources.Shares(request.MilliValue())),
		MemoryLimitInBytes: memory.Value(),
		OomScoreAdj:        resources.OOMScoreAdj(pod, c, capacity.Memory().Value()),
		HugepageLimits:     b.hugePages(c),
	}
	b.quota(out, limit.MilliValue())
	if b.machine.unified {
		out.Unified = map[string]string{}
		if b.cfg.SingleProcessOOMKill == nil || !*b.cfg.SingleProcessOOMKill {
			out.Unified["memory.oom.group"] = "1"
		}
		if b.machine.swap {
			out.Unified["memory.swap.max"] = "0"
		}
	}
	return out
}

// quota sets the cpu quota of a limit where quotas are on.
func (b *Builder) quota(out *runtimeapi.LinuxContainerResources, milliLimit int64) {
	if !b.cfg.CPUCFSQuota || milliLimit <= 0 {
		return
	}
	period := b.cfg.CPUCFSQuotaPeriod.Microseconds()
	if period <= 0 {
		period = 100_000
	}
	out.CpuPeriod, out.CpuQuota = period, resources.Quota(milliLimit, uint64(period))
}

// hugePages limits every page size of the machine; those not asked for to none.
func (b *Builder) hugePages(c *v1.Container) []*runtimeapi.HugepageLimit {
	limits := map[string]uint64{}
	for name, q := range c.Resources.Limits {
		if size, err := resources.PageSize(name); err == nil {
			limits[size] = uint64(q.Value())
		}
	}
	var list []*runtimeapi.HugepageLimit
	for _, size := range b.machine.pageSizes {
		list = append(list, &runtimeapi.HugepageLimit{PageSize: size, Limit: limits[size]})
	}
	return list
}

// overhead is what the pod's runtime class adds.
func (b *Builder) overhead(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return &runtimeapi.LinuxContainerResources{}
	}
	cpu, memory := pod.Spec.Overhead[v1.ResourceCPU], pod.Spec.Overhead[v1.ResourceMemory]
	out := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory.Value()}
	if cpu.MilliValue() > 0 {
		out.CpuShares = int64(resources.Shares(cpu.MilliValue()))
	}
	b.quota(out, cpu.MilliValue())
	return out
}

// sandboxResources is what the pod's containers add up to, without overhead.
func (b *Builder) sandboxResources(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	bare := *pod
	bare.Spec.Overhead = nil
	t := resources.ForPod(&bare)
	out := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: t.MemoryLimit, CpuShares: int64(resources.Shares(t.MilliCPU))}
	b.quota(out, t.CPULimit)
	return out
}
