package criconfig

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// containerResources maps a container's requests and limits.
func (b *Builder) containerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	b.machine.look()
	capacity := b.deps.Capacity()
	out := Kernel(resources.ForContainer(resources.Effective(pod, c), b.quotas()))
	out.OomScoreAdj = resources.OOMScoreAdj(pod, c, capacity.Memory().Value())
	out.HugepageLimits = b.hugePages(pod, c)
	if b.machine.unified {
		out.Unified = map[string]string{}
		if b.cfg.SingleProcessOOMKill == nil || !*b.cfg.SingleProcessOOMKill {
			out.Unified["memory.oom.group"] = "1"
		}
		maps.Copy(out.Unified, b.cfg.MemoryQoS.Container(pod, c, capacity.Memory().Value()-b.cfg.ReservedMemoryBytes))
	}
	b.machine.limitSwap(out, b.swap(pod, c, capacity.Memory().Value()))
	return out
}

// Resized is what the runtime is told of a running container of a pod that is to have k.
// What it may swap stays as it was: one that may swap is not resized.
func (b *Builder) Resized(pod *v1.Pod, container string, k resources.Kernel) *runtimeapi.LinuxContainerResources {
	b.machine.look()
	out := Kernel(k)
	if !b.machine.unified {
		b.machine.limitSwap(out, 0)
		return out
	}
	if c, _ := podutil.Container(pod, container); c != nil {
		capacity := b.deps.Capacity()
		out.Unified = b.cfg.MemoryQoS.Resized(pod, c, capacity.Memory().Value()-b.cfg.ReservedMemoryBytes)
	}
	return out
}

// swap is how many bytes a container may swap. Version 1 of cgroups limits
// memory and swap together, so that what a container may swap would be as much
// memory to it.
func (b *Builder) swap(pod *v1.Pod, c *v1.Container, nodeMemory int64) int64 {
	if !b.cfg.LimitedSwap || !b.machine.unified {
		return 0
	}
	return resources.Swap(pod, c, nodeMemory, b.machine.swapBytes)
}

// Kernel is how CRI is told of what a container is to have.
func Kernel(k resources.Kernel) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{CpuShares: k.Shares, CpuQuota: k.Quota, CpuPeriod: k.Period, MemoryLimitInBytes: k.Memory}
}

// SandboxResources are what the runtime is told of the pod as a whole: the
// overhead of its class, and what its containers add up to.
func (b *Builder) SandboxResources(pod *v1.Pod) (overhead, containers *runtimeapi.LinuxContainerResources) {
	return b.overhead(pod), b.boundedResources(pod)
}

func (b *Builder) quotas() resources.Quotas {
	return resources.Quotas{On: b.cfg.CPUCFSQuota, PeriodMicros: b.cfg.CPUCFSQuotaPeriod.Microseconds()}
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
func (b *Builder) hugePages(pod *v1.Pod, c *v1.Container) []*runtimeapi.HugepageLimit {
	limits := resources.HugePages(pod, c)
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

// sandboxResources is what a new sandbox is told, without overhead: the limits of
// those of the pod's containers that have one add up, for a runtime that makes a
// machine of the pod needs a size.
func (b *Builder) sandboxResources(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	out := b.boundedResources(pod)
	limits := podresource.PodLimits(pod, podresource.PodResourcesOptions{ExcludeOverhead: true})
	out.MemoryLimitInBytes = limits.Memory().Value()
	b.quota(out, limits.Cpu().MilliValue())
	return out
}

// boundedResources is what the pod's containers may use together, without
// overhead: no limit where one of them has none.
func (b *Builder) boundedResources(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	bare := *pod
	bare.Spec.Overhead = nil
	t := resources.ForPod(&bare)
	out := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: t.MemoryLimit, CpuShares: int64(resources.Shares(t.MilliCPU))}
	b.quota(out, t.CPULimit)
	return out
}
