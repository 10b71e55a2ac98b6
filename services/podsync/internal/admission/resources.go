package admission

import (
	"fmt"
	"slices"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/polylet/polylet/internal/resourcename"
)

// shortage is one resource of which too little is left; CPU in thousandths,
// the rest in the resource's own unit.
type shortage struct {
	Name                      v1.ResourceName
	Requested, Used, Capacity int64
}

func (s shortage) text() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.Name, s.Requested, s.Used, s.Capacity)
}

// missing is how much must come free.
func (s shortage) missing() int64 { return s.Requested - (s.Capacity - s.Used) }

// shortages compares what the pod asks for with what these pods leave: number
// of pods, cpu, memory, ephemeral storage, then the rest by name.
func shortages(in Input, active []*v1.Pod) []shortage {
	capacity, complete := in.allocatable()
	if len(capacity) == 0 {
		return nil
	}
	used, want := map[v1.ResourceName]int64{}, requests(in.Pod)
	for _, pod := range active {
		if pod.UID == in.Pod.UID {
			continue
		}
		addUse(used, want, pod)
	}
	var out []shortage
	for _, name := range inOrder(want) {
		q, bounded := capacity[name]
		if !bounded && (!complete || resourcename.Extended(name)) || want[name] <= 0 || in.Resize && resourcename.Extended(name) {
			continue
		}
		if s := (shortage{name, want[name], used[name], value(name, q)}); s.missing() > 0 {
			out = append(out, s)
		}
	}
	return out
}

// allocatable is what pods may use. It is complete when what is not in it is
// not there.
func (in *Input) allocatable() (list v1.ResourceList, complete bool) {
	if in.Allocatable != nil || in.Node == nil {
		return in.Allocatable, false
	}
	return in.Node.Status.Allocatable, true
}

// requests are what a pod asks for, or was allocated when it runs, itself included.
func requests(pod *v1.Pod) map[v1.ResourceName]int64 {
	out := map[v1.ResourceName]int64{v1.ResourcePods: 1}
	for name, q := range podresource.PodRequests(pod, podresource.PodResourcesOptions{}) {
		out[name] = value(name, q)
	}
	return out
}

// addUse adds what a pod asks for of the resources that are wanted. Admission
// asks that of every pod for every pod, so the plain ones, which are most, take
// the short way.
func addUse(used, want map[v1.ResourceName]int64, pod *v1.Pod) {
	plain := len(pod.Spec.InitContainers) == 0 && pod.Spec.Resources == nil && pod.Spec.Overhead == nil
	if !plain {
		for name, n := range requests(pod) {
			used[name] += n
		}
		return
	}
	for name := range want {
		if name == v1.ResourcePods {
			used[name]++
			continue
		}
		var sum resource.Quantity
		for i := range pod.Spec.Containers {
			if q, ok := pod.Spec.Containers[i].Resources.Requests[name]; ok {
				sum.Add(q)
			}
		}
		used[name] += value(name, sum)
	}
}

// inOrder are the names in the order in which shortages are told.
func inOrder(list map[v1.ResourceName]int64) []v1.ResourceName {
	first := map[v1.ResourceName]int{v1.ResourcePods: 4, v1.ResourceCPU: 3, v1.ResourceMemory: 2, v1.ResourceEphemeralStorage: 1}
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		if a, b := first[names[i]], first[names[j]]; a != b {
			return a > b
		}
		return names[i] < names[j]
	})
	return names
}

// value is a quantity as messages show it: CPU in thousandths.
func value(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// noDevices is what the kubelet says of a resource whose device plugin is away.
const noDevices = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices %s, which is unexpected"

// checkDevices refuses a pod whose device plugin is none that this node can have. It lets
// one wait whose devices the node has had and does not have now: after a restart their
// plugin may only be on its way.
func checkDevices(in Input) (Answer, bool) {
	if in.Resize {
		return fine() // it has its devices, and keeps them
	}
	if name := goneDevice(in); name != "" {
		return rejected(reasonUnexpected, noDevices, name)
	}
	if in.Node == nil {
		return fine()
	}
	want := requests(in.Pod)
	for _, name := range inOrder(want) {
		if !resourcename.Extended(name) || want[name] <= 0 {
			continue
		}
		had, healthy := in.Node.Status.Capacity[name], in.Node.Status.Allocatable[name]
		if had.Sign() <= 0 || healthy.Sign() > 0 {
			continue
		}
		if in.late() {
			return rejected(reasonUnexpected, noDevices, name)
		}
		return notYet(reasonUnexpected, "no device of %s is healthy now, of %s that this node has; the pod waits for their plugin", name, had.String())
	}
	return fine()
}

// goneDevice is a resource that a container asks for and that is of a device plugin which
// nobody serves; empty: there is none.
func goneDevice(in Input) v1.ResourceName {
	for _, list := range [][]v1.Container{in.Pod.Spec.InitContainers, in.Pod.Spec.Containers} {
		for i := range list {
			for _, name := range in.GoneDevices {
				if many, asks := list[i].Resources.Limits[name]; asks && many.Sign() > 0 && !claimed(in.Pod, list[i].Name, name) {
					return name
				}
			}
		}
	}
	return ""
}

// claimed says whether a container has a resource by a claim, and so by no device plugin.
// Source: KEP-5004.
func claimed(pod *v1.Pod, container string, name v1.ResourceName) bool {
	claim := pod.Status.ExtendedResourceClaimStatus
	return claim != nil && slices.ContainsFunc(claim.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(name)
	})
}
