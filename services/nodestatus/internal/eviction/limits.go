package eviction

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Names of the limits in metrics.
const (
	emptyDirLimit  = "emptydirfs.limit"
	podLimit       = "ephemeralpodfs.limit"
	containerLimit = "ephemeralcontainerfs.limit"
)

// IsLimit says whether a signal is a pod's own limit, and not what a node is short of.
func IsLimit(signal string) bool {
	return signal == emptyDirLimit || signal == podLimit || signal == containerLimit
}

// Breach is a pod that uses more local storage than it may.
type Breach struct {
	Pod *v1.Pod
	// Signal names the limit, as metrics have it; Message is what is said of it.
	Signal, Message string
	// Used is what was measured, Limit what is allowed.
	Used, Limit string
	// Sum: no directory alone has that much, and the figures of several may be of many times: what
	// was moved from one to another may count in both.
	Sum bool
	// Unlinked names what of it no directory shows.
	Unlinked Held
}

// Limited says whether a pod has a limit of local storage at all.
func Limited(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			return true
		}
	}
	_, ok := helpers.PodLimits(pod, helpers.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return ok
}

// Breaches returns the pods that use more local storage than they may, at most one
// breach of each: of a volume, of the pod as a whole, of a container. Files that were
// removed and are open count, by pod.
func Breaches(pods []*v1.Pod, figures Figures, unlinked map[types.UID][]Unlinked, layout threshold.Layout) []Breach {
	return breaches(pods, figures, unlinked, layout, emptyDirBreach, podBreach, containerBreach)
}

// OfContainers are the breaches of limits of single containers. Of their sums, of log and layer, no
// volume is a part.
func OfContainers(pods []*v1.Pod, figures Figures, layout threshold.Layout) []Breach {
	return breaches(pods, figures, nil, layout, containerBreach)
}

func breaches(pods []*v1.Pod, figures Figures, unlinked map[types.UID][]Unlinked, layout threshold.Layout, limits ...func(*v1.Pod, *statsapi.PodStats, removed, threshold.Layout) (Breach, bool)) []Breach {
	var out []Breach
	for _, pod := range pods {
		stats := figures[string(pod.UID)]
		if stats == nil || Ended(pod) || Spared(pod) != "" {
			continue
		}
		held := removedOf(pod, unlinked[pod.UID])
		var first Breach
		for _, of := range limits {
			if b, found := of(pod, stats, held, layout); found && (first.Signal == "" || first.Sum && !b.Sum) {
				first = b // What is sure is not hidden behind a sum.
			}
		}
		if first.Signal != "" {
			first.Pod, first.Unlinked = pod, held.named
			out = append(out, first)
		}
	}
	return out
}

// Enough says whether what a pod had may be enough for a threshold once it has ended.
// Of one without figures nobody knows, so that it may, and so of one with a layer that was
// never weighed, unless that counts for nothing.
func Enough(m pressure.Met, layout threshold.Layout, pod *v1.Pod, s *statsapi.PodStats, layersCount bool) bool {
	if s == nil || layersCount && partsOf(m.Signal, layout).layers && pressure.KindOf(m.Signal) == pressure.Disk && unweighed(s) {
		return true
	}
	usage, known := usageOf(m.By, layout, pod, s)
	return !known || m.By.Available+uint64(max(usage, 0)) >= m.Enough(m.By.Capacity)
}

func unweighed(s *statsapi.PodStats) bool {
	return slices.ContainsFunc(s.Containers, func(c statsapi.ContainerStats) bool {
		return c.Rootfs == nil || c.Rootfs.Time.IsZero() && used(v1.ResourceEphemeralStorage, c.Rootfs) == 0
	})
}

func emptyDirBreach(pod *v1.Pod, s *statsapi.PodStats, held removed, _ threshold.Layout) (Breach, bool) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		limit := v.EmptyDir.SizeLimit
		if amount := bytes(used(v1.ResourceEphemeralStorage, volume(s, v.Name)) + held.of(v)); amount.Cmp(*limit) > 0 {
			return Breach{
				Signal: emptyDirLimit, Used: amount.String(), Limit: limit.String(),
				Message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String()),
			}, true
		}
	}
	return Breach{}, false
}

func podBreach(pod *v1.Pod, s *statsapi.PodStats, held removed, layout threshold.Layout) (Breach, bool) {
	limit, ok := helpers.PodLimits(pod, helpers.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	if !ok || s.EphemeralStorage == nil {
		return Breach{}, false
	}
	all := *s.EphemeralStorage
	if layout.ImagesApart {
		all.CapacityBytes = nil // It lies on two filesystems.
	}
	// Of what was never counted whole the total is no sum, and may be without what is taken off.
	total := max(used(v1.ResourceEphemeralStorage, &all)-initialized(pod, s), largest(pod, s), 0)
	amount := bytes(total + held.all())
	if amount.Cmp(limit) <= 0 {
		return Breach{}, false
	}
	return Breach{
		Sum: bytes(alone(pod, s, held)).Cmp(limit) <= 0, Signal: podLimit, Used: amount.String(), Limit: limit.String(),
		Message: fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()),
	}, true
}

// largest is what the largest of a pod's emptyDirs on the disk takes.
func largest(pod *v1.Pod, s *statsapi.PodStats) (most int64) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault {
			most = max(most, used(v1.ResourceEphemeralStorage, volume(s, v.Name)))
		}
	}
	return most
}

// alone is what the largest of a pod's directories takes, with what is held open in it: an emptyDir,
// a writable layer or logs.
func alone(pod *v1.Pod, s *statsapi.PodStats, held removed) (most int64) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault {
			most = max(most, used(v1.ResourceEphemeralStorage, volume(s, v.Name))+held.of(v))
		}
	}
	for i := range s.Containers {
		if c := &s.Containers[i]; !initializes(pod, c) {
			most = max(most, used(v1.ResourceEphemeralStorage, c.Rootfs)+held.layers[c.Name], used(v1.ResourceEphemeralStorage, c.Logs))
		}
	}
	return most
}

// initialized is what is left of a pod's init containers that have ended. It counts for no
// limit: the pod's is the largest of theirs or the sum of the others', as they do not run
// together.
func initialized(pod *v1.Pod, s *statsapi.PodStats) (sum int64) {
	for i := range s.Containers {
		c := &s.Containers[i]
		if initializes(pod, c) {
			sum += used(v1.ResourceEphemeralStorage, c.Rootfs) + used(v1.ResourceEphemeralStorage, c.Logs)
		}
	}
	return sum
}

// initializes says whether a container is an init container that has ended.
func initializes(pod *v1.Pod, c *statsapi.ContainerStats) bool {
	return ended(c) && slices.ContainsFunc(pod.Spec.InitContainers, func(init v1.Container) bool {
		return init.Name == c.Name && (init.RestartPolicy == nil || *init.RestartPolicy != v1.ContainerRestartPolicyAlways)
	})
}

// containerBreach counts the logs, and the layer where it is on the node's
// filesystem.
func containerBreach(pod *v1.Pod, s *statsapi.PodStats, held removed, layout threshold.Layout) (Breach, bool) {
	var sum Breach
	limits := map[string]*resource.Quantity{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if limit := c.Resources.Limits.StorageEphemeral(); !limit.IsZero() {
			limits[c.Name] = limit
		}
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		limit := limits[c.Name]
		if limit == nil {
			continue
		}
		logs, layer := used(v1.ResourceEphemeralStorage, c.Logs), int64(0)
		if !layout.ImagesApart {
			layer = used(v1.ResourceEphemeralStorage, c.Rootfs) + held.layers[c.Name]
		}
		if amount := bytes(logs + layer); amount.Cmp(*limit) > 0 {
			b := Breach{
				Sum: bytes(max(logs, layer)).Cmp(*limit) <= 0, Signal: containerLimit, Used: amount.String(), Limit: limit.String(),
				Message: fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String()),
			}
			if !b.Sum {
				return b, true
			}
			if sum.Signal == "" {
				sum = b
			}
		}
	}
	return sum, sum.Signal != ""
}

func bytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }
