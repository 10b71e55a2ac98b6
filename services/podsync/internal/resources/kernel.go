package resources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Quotas says whether and how cpu limits become quotas.
type Quotas struct {
	On bool
	// PeriodMicros zero is 100 ms.
	PeriodMicros int64
}

// Kernel is what a container's requests and limits come to in the terms of CRI.
type Kernel struct {
	// Shares are cpu.shares, 2 at least.
	Shares int64
	// Quota and Period are microseconds; both zero for no quota.
	Quota, Period int64
	// Memory limit in bytes; zero for none.
	Memory int64
}

// ForContainer is what the runtime is told of a container that has these
// resources, which Effective has made.
func ForContainer(r v1.ResourceRequirements, q Quotas) Kernel {
	cpu, ok := r.Requests[v1.ResourceCPU]
	if !ok {
		cpu = r.Limits[v1.ResourceCPU]
	}
	limit, memory := r.Limits[v1.ResourceCPU], r.Limits[v1.ResourceMemory]
	k := Kernel{Shares: int64(Shares(cpu.MilliValue())), Memory: memory.Value()}
	if q.On && limit.MilliValue() > 0 {
		k.Period = q.PeriodMicros
		if k.Period <= 0 {
			k.Period = defaultPeriod
		}
		k.Quota = Quota(limit.MilliValue(), uint64(k.Period))
	}
	return k
}

// Effective are a container's cpu and memory as they are enforced: a limit that
// it does not have is the pod's own.
// Source: KEP-2837; the container's cgroup shows the pod's limit then.
func Effective(pod *v1.Pod, c *v1.Container) v1.ResourceRequirements {
	out := v1.ResourceRequirements{Requests: pick(c.Resources.Requests), Limits: pick(c.Resources.Limits)}
	if pod.Spec.Resources == nil {
		return out
	}
	for _, name := range resizable {
		q, ok := pod.Spec.Resources.Limits[name]
		if own := out.Limits[name]; !ok || !own.IsZero() {
			continue
		}
		if out.Limits == nil {
			out.Limits = v1.ResourceList{}
		}
		out.Limits[name] = q
	}
	return out
}

// resizable are the resources that can change while a pod runs.
var resizable = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// pick is the resizable part of a list; nil when there is none.
func pick(l v1.ResourceList) v1.ResourceList {
	var out v1.ResourceList
	for _, name := range resizable {
		if q, ok := l[name]; ok {
			if out == nil {
				out = v1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

// MilliCPU is the request that gives these shares.
func (k Kernel) MilliCPU() resource.Quantity {
	return *resource.NewMilliQuantity((k.Shares*milliPerCPU+sharesPerCPU-1)/sharesPerCPU, resource.DecimalSI)
}

// CPULimit is the limit that gives this quota; zero without one.
func (k Kernel) CPULimit() resource.Quantity {
	if k.Period <= 0 || k.Quota <= 0 {
		return resource.Quantity{}
	}
	return *resource.NewMilliQuantity((k.Quota*milliPerCPU+k.Period/2)/k.Period, resource.DecimalSI)
}

// Lowers says whether going from k to next takes something away that a running
// process may be using.
func (k Kernel) Lowers(next Kernel) bool {
	return below(next.Memory, k.Memory) || below(next.Quota, k.Quota)
}

// below compares two limits of which zero is none.
func below(a, b int64) bool { return a > 0 && (b <= 0 || a < b) }
