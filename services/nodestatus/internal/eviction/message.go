package eviction

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Annotations of the event of an eviction.
const (
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
	starvedResource          = "starved_resource"
)

// mostBlamed is how many bytes of a message name containers: podsync takes 32 KiB.
const mostBlamed = 16 << 10

// Text is the threshold and what is left, as users are told.
func Text(m pressure.Met) (limit, available string) {
	limit = m.Text
	if m.Percent > 0 {
		limit = resource.NewQuantity(whole(m.Of(m.By.Capacity)), resource.BinarySI).String()
	}
	return limit, Amount(m.Signal, m.By.Available)
}

// Amount is an amount of what a signal is about, as users are told.
func Amount(signal string, amount uint64) string {
	format := resource.BinarySI
	if name := ResourceOf(signal); name == inodes || name == pids {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(whole(amount), format).String()
}

// lowOn is how a message begins that says of what the node had too little.
const lowOn = "The node was low on resource: "

// KindOf is the shortage for which a pod went that was stopped with a message; limit: it
// went because of a limit of its own, of what lies on a disk.
func KindOf(message string) (kind pressure.Kind, limit bool) {
	rest, short := strings.CutPrefix(message, lowOn)
	name, _, _ := strings.Cut(rest, ". ")
	switch v1.ResourceName(name) {
	case v1.ResourceMemory:
		return pressure.Memory, false
	case pids:
		return pressure.PID, false
	}
	return pressure.Disk, !short
}

// availableIs stands in a message before what was left.
const availableIs = ", available: "

// AvailableOf is what was left by a message when the pod was chosen that was stopped with it,
// or otherwise where it does not say.
func AvailableOf(message string, otherwise uint64) uint64 {
	_, rest, _ := strings.Cut(message, availableIs)
	amount, _, _ := strings.Cut(rest, ". ")
	q, err := resource.ParseQuantity(amount)
	if err != nil || q.Sign() < 0 {
		return otherwise
	}
	return uint64(q.Value()) //nolint:gosec // Not negative.
}

// Message says why a pod has to go for a threshold, and which annotations the event
// has that says so. stats may be nil.
func Message(m pressure.Met, pod *v1.Pod, stats *statsapi.PodStats) (message string, annotations map[string]string) {
	name := ResourceOf(m.Signal)
	annotations = map[string]string{}
	limit, available := Text(m)
	var out strings.Builder
	fmt.Fprintf(&out, lowOn+"%s. ", name)
	fmt.Fprintf(&out, "Threshold quantity: %s"+availableIs+"%s. ", limit, available)
	if stats == nil {
		return out.String(), annotations
	}
	if asked, ok := podRequest(pod, name); ok && stats.Memory != nil {
		usage := memory(stats.Memory)
		fmt.Fprintf(&out, "Pod %s was using %s, request is %s, has larger consumption of %s. ", pod.Name, usage.String(), asked.String(), name)
		annotations[offendingPod], annotations[offendingPodUsage] = pod.Name, usage.String()
	}
	var names, usages []string
	for _, s := range byName(stats.Containers) {
		asked, there := containerRequest(pod, s[0].Name, name)
		usage := containersUsage(s, name)
		if !there || usage == nil || usage.Cmp(asked) <= 0 {
			continue
		}
		if out.Len() >= mostBlamed {
			out.WriteString("So have more of its containers. ")
			break
		}
		fmt.Fprintf(&out, "Container %s was using %s, request is %s, has larger consumption of %s. ", s[0].Name, usage.String(), asked.String(), name)
		names, usages = append(names, s[0].Name), append(usages, usage.String())
	}
	annotations[offendingContainers] = strings.Join(names, ",")
	annotations[offendingContainersUsage] = strings.Join(usages, ",")
	annotations[starvedResource] = string(name)
	return out.String(), annotations
}

// podRequest is what a pod as a whole asked for.
func podRequest(pod *v1.Pod, name v1.ResourceName) (resource.Quantity, bool) {
	if name != v1.ResourceMemory || !helpers.IsPodLevelResourcesSet(pod) {
		return resource.Quantity{}, false
	}
	asked, ok := pod.Spec.Resources.Requests[name]
	return asked, ok
}

// containerRequest is what a container asked for. Ephemeral containers cannot ask,
// and are not blamed for that.
func containerRequest(pod *v1.Pod, container string, name v1.ResourceName) (asked resource.Quantity, there bool) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Resources.Requests[name], true
			}
		}
	}
	return resource.Quantity{}, false
}

// byName are containers with their instances that have ended, which the runtime keeps and which
// count for disks: each container is told of once.
func byName(all []statsapi.ContainerStats) (out [][]*statsapi.ContainerStats) {
	for i := range all {
		at := slices.IndexFunc(out, func(c []*statsapi.ContainerStats) bool { return c[0].Name == all[i].Name })
		if at < 0 {
			at, out = len(out), append(out, nil)
		}
		out[at] = append(out[at], &all[i])
	}
	return out
}

// containersUsage is what the instances of a container use together; nil when that is not told
// of any.
func containersUsage(instances []*statsapi.ContainerStats, name v1.ResourceName) (sum *resource.Quantity) {
	for _, s := range instances {
		switch usage := containerUsage(s, name); {
		case usage == nil:
		case sum == nil:
			sum = usage
		default:
			sum.Add(*usage)
		}
	}
	return sum
}

// containerUsage is what a container uses of a resource; nil when that is not told.
func containerUsage(s *statsapi.ContainerStats, name v1.ResourceName) *resource.Quantity {
	switch name {
	case v1.ResourceEphemeralStorage:
		if s.Rootfs != nil && s.Rootfs.UsedBytes != nil && s.Logs != nil && s.Logs.UsedBytes != nil {
			return resource.NewQuantity(whole(*s.Rootfs.UsedBytes+*s.Logs.UsedBytes), resource.BinarySI)
		}
	case v1.ResourceMemory:
		if s.Memory != nil && s.Memory.WorkingSetBytes != nil {
			return memory(s.Memory)
		}
	}
	return nil
}

func memory(m *statsapi.MemoryStats) *resource.Quantity {
	var n uint64
	if m.WorkingSetBytes != nil {
		n = *m.WorkingSetBytes
	}
	return resource.NewQuantity(whole(n), resource.BinarySI)
}
