// Package eviction says which pod has to go when the node is short of something,
// and what is said of it; and which pods use more local storage than they may. It
// is pure: figures and pods are passed in. It must never stop a pod, ask for figures
// or read a clock.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package eviction

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// Reason is status.reason of a pod that was evicted, and of the event.
	Reason = "Evicted"
	// DisruptionReason is that of its condition DisruptionTarget.
	DisruptionReason = v1.PodReasonTerminationByKubelet
	// Immediate is the grace period of a pod that has to go at once.
	Immediate = time.Second

	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"

	criticalPriority = 2_000_000_000
)

// ResourceOf is what a signal is about, as users are told.
func ResourceOf(signal string) v1.ResourceName {
	switch {
	case pressure.KindOf(signal) == pressure.Memory:
		return v1.ResourceMemory
	case signal == threshold.PID:
		return pids
	case strings.HasSuffix(signal, ".inodesFree"):
		return inodes
	}
	return v1.ResourceEphemeralStorage
}

// Order returns what is due in the order in which it is acted upon: memory first,
// then hard thresholds before soft ones.
func Order(due []pressure.Met) []pressure.Met {
	rank := func(m pressure.Met) int {
		out := 0
		if pressure.KindOf(m.Signal) != pressure.Memory {
			out += 2
		}
		if m.Grace > 0 {
			out++
		}
		return out
	}
	out := slices.Clone(due)
	slices.SortStableFunc(out, func(a, b pressure.Met) int { return rank(a) - rank(b) })
	return out
}

// Reclaim is what the node can do without.
type Reclaim struct {
	// Containers are those that have ended; Images those that no container uses.
	Containers, Images bool
}

// Reclaimable is what may help against a signal, before a pod has to go.
func Reclaimable(signal string, layout threshold.Layout) Reclaim {
	if pressure.KindOf(signal) != pressure.Disk {
		return Reclaim{}
	}
	ofNode := strings.HasPrefix(signal, "nodefs.")
	ofImages := strings.HasPrefix(signal, "imagefs.")
	switch {
	case layout.ImagesApart && layout.ContainersApart:
		return Reclaim{Containers: !ofImages, Images: ofImages}
	case layout.ImagesApart && ofNode:
		return Reclaim{}
	}
	return Reclaim{Containers: true, Images: true}
}

// Grace is how long a pod may take that goes because of a threshold; longest is
// evictionMaxPodGracePeriod.
func Grace(t threshold.Threshold, pod *v1.Pod, longest time.Duration) time.Duration {
	if t.Grace == 0 {
		return Immediate
	}
	longest = max(longest, 0)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil && *own < int64(longest/time.Second) {
		return time.Duration(max(*own, 0)) * time.Second
	}
	return longest
}

// Spared says why a pod is never evicted; empty when it may be.
func Spared(pod *v1.Pod) string {
	source, known := pod.Annotations["kubernetes.io/config.source"]
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	switch {
	case mirror:
		return "a mirror of a static pod"
	case known && source != "api":
		return "a static pod"
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority:
		return "of critical priority"
	}
	return ""
}

// Ended says whether nothing of a pod runs any more, as far as its status tells.
func Ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

// Figures are what a summary says of the pods, by UID.
type Figures map[string]*statsapi.PodStats

// FiguresOf takes them from a summary.
func FiguresOf(s *statsapi.Summary) Figures {
	out := Figures{}
	for i := range s.Pods {
		out[s.Pods[i].PodRef.UID] = &s.Pods[i]
	}
	return out
}

// ended says of a container whether nothing of it is left but what it has on disks. One that
// has just started may seem so.
func ended(c *statsapi.ContainerStats) bool { return c.CPU == nil && c.Memory == nil }
