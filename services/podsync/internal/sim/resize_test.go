package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// nodeCPU is what the pods of the node may request together.
const nodeCPU = 64

// size is what a container requests, in cpus and MiB; its memory is limited to that.
type size struct{ cpu, memory int64 }

func (s size) requirements(guaranteed bool) v1.ResourceRequirements {
	memory := *resource.NewQuantity(s.memory<<20, resource.BinarySI)
	r := v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(s.cpu, resource.DecimalSI), v1.ResourceMemory: memory},
		Limits:   v1.ResourceList{v1.ResourceMemory: memory},
	}
	if guaranteed {
		r.Limits[v1.ResourceCPU] = r.Requests[v1.ResourceCPU]
	}
	return r
}

func sizeOf(l v1.ResourceList) size { return size{l.Cpu().Value(), l.Memory().Value() >> 20} }

// sizes are those that a pod may be resized to: some fit, some fit only while no
// other pod is as large, and one never does.
func (s *subject) nextSize(rng *rand.Rand) size {
	return size{[]int64{1, 2, 3, 40, 90}[rng.IntN(5)], []int64{64, 128, 256}[rng.IntN(3)]}
}

// sized gives a container its first size, and perhaps the wish to be restarted
// for another.
func (m *maker) sized(c *v1.Container) {
	m.sizes = []size{{1, 64}}
	c.Resources = m.sizes[0].requirements(m.guaranteed)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		policy := v1.NotRequired
		if m.rng.IntN(4) == 0 {
			policy = v1.RestartContainer
		}
		c.ResizePolicy = append(c.ResizePolicy, v1.ContainerResizePolicy{ResourceName: name, RestartPolicy: policy})
	}
}

// restartsFor says whether the first container asks to be restarted for a change.
func (s *subject) restartsFor(a, b size) bool {
	for _, p := range s.pod.Spec.Containers[0].ResizePolicy {
		if p.RestartPolicy == v1.RestartContainer && (p.ResourceName == v1.ResourceCPU && a.cpu != b.cpu || p.ResourceName == v1.ResourceMemory && a.memory != b.memory) {
			return true
		}
	}
	return false
}

// resize asks for another size of a pod's first container.
func (w *world) resize(sub *subject, to size) {
	w.update(sub, func(pod *v1.Pod) {
		w.judge.resized(sub, to)
		pod.Spec.Containers[0].Resources = to.requirements(sub.guaranteed)
	})
}

// resized notes that a pod is to have another size. It may have any of its
// earlier ones until then.
func (j *judge) resized(sub *subject, to size) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, from := range sub.sizes {
		if sub.restartsFor(from, to) {
			j.facts[sub.pod.Name].because("its resize asks for a restart", sub.pod.Spec.Containers[0].Name, time.Now(), sub.grace())
		}
	}
	mine := j.facts[sub.pod.Name]
	for _, other := range j.facts { // what was asked for after it may not be admitted yet
		if other.since.After(mine.since) && !other.over() {
			other.others += max(0, to.cpu-sub.asks())
		}
	}
	sub.sizes = append(sub.sizes, to)
}

// wrongSizes says what of the sizes of the pods is not as it must be: what fits
// is allocated, what is allocated is in effect, and all together fit.
func (w *world) wrongSizes(pods map[*subject]*v1.Pod, snapshot fakecri.Snapshot) string {
	all := int64(0)
	allocated := map[*subject]size{}
	for sub, pod := range pods {
		if !ended(pod) {
			all += sub.cpu
		}
		if len(sub.sizes) == 0 || ended(pod) || len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		allocated[sub] = sizeOf(pod.Status.ContainerStatuses[0].AllocatedResources)
		all += allocated[sub].cpu
	}
	if all > nodeCPU {
		return fmt.Sprintf("%d cpus are allocated of %d", all, nodeCPU)
	}
	for sub, has := range allocated {
		pod := pods[sub]
		if why := notAllocated(sub, pod, has, nodeCPU-all); why != "" {
			return fmt.Sprintf("the size of pod %s is wrong: %s: it asks for %v, %v are allocated; conditions %v", sub.pod.Name, why, sub.sizes, has, pod.Status.Conditions)
		}
		if why := notInEffect(sub, pod, has, snapshot); why != "" {
			return fmt.Sprintf("the size of pod %s is wrong: %s, %v are allocated", sub.pod.Name, why, has)
		}
	}
	return ""
}

// notAllocated says what is wrong with what a pod is allocated, and with what its
// conditions say of it; free are the cpus that are left.
func notAllocated(sub *subject, pod *v1.Pod, has size, free int64) string {
	asked, known := sub.sizes[len(sub.sizes)-1], false
	for _, s := range sub.sizes {
		known = known || s == has
	}
	want := ""
	switch {
	case !known:
		return "nobody ever asked for what it is allocated"
	case has == asked:
	case sub.guaranteed && has.cpu != asked.cpu:
		want = v1.PodReasonInfeasible // the node's policy for cpus is static
	case asked.cpu <= has.cpu+free:
		return "what it asks for fits"
	default:
		want = v1.PodReasonDeferred
	}
	pending := ""
	for _, c := range pod.Status.Conditions {
		switch c.Type {
		case v1.PodResizePending:
			pending = c.Reason
		case v1.PodResizeInProgress:
			return "its resize does not end"
		}
	}
	if pending != want {
		return fmt.Sprintf("its resize is %q, not %q", pending, want)
	}
	return ""
}

// notInEffect says how what a container has differs from what it is allocated.
func notInEffect(sub *subject, pod *v1.Pod, has size, snapshot fakecri.Snapshot) string {
	st := pod.Status.ContainerStatuses[0]
	if st.State.Running == nil {
		return ""
	}
	for _, c := range snapshot.Containers {
		if "containerd://"+c.ID != st.ContainerID {
			continue
		}
		if got := (size{c.Resources.GetCpuShares() / 1024, c.Resources.GetMemoryLimitInBytes() >> 20}); got != has {
			return fmt.Sprintf("the runtime has %v", got)
		}
		made := c.Config.GetLinux().GetResources()
		if got := (size{made.GetCpuShares() / 1024, made.GetMemoryLimitInBytes() >> 20}); sub.restartsFor(got, has) {
			return fmt.Sprintf("it was started with %v and asks for a restart", got)
		}
	}
	if st.Resources == nil || sizeOf(st.Resources.Requests) != has {
		return fmt.Sprintf("its status shows %v", st.Resources)
	}
	return ""
}
