package eviction

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Candidate is a pod as the ranking sees it.
type Candidate struct {
	Pod *v1.Pod
	// Usage is what it uses of what is short, Request what it asked for, in the
	// resource's unit; both 0 where Not says that nothing is known.
	Usage, Request int64
	// Exceeds is whether it uses more than it asked for; Priority is the pod's.
	Exceeds  bool
	Priority int32
	// Unlinked names files without a name that it holds open, which Usage counts; empty
	// when there are none.
	Unlinked Held
	// Not is why it is not evicted whatever its figures are; empty when it may be. Unknown:
	// that is because there are none.
	Not     string
	Unknown bool
}

// Rank orders pods for what a signal says: the first is the one to go. Those that may
// not come last. Pods that have ended are left out.
//
// A request is what the pod was allocated, whatever a resize asks for.
//
// Beside what the kubelet ranks by, a pod of which the summary has no figures, or
// ones that cannot be, is no candidate: nobody knows whether its end would help.
// And of inodes only inodes are counted: the kubelet takes the request for bytes
// off their number. And what lies in files that are open and have no name any more
// counts for who holds them, where unlinked says so.
func Rank(by pressure.Signal, layout threshold.Layout, pods []*v1.Pod, figures Figures, unlinked map[types.UID][]Unlinked) []Candidate {
	var out []Candidate
	for _, pod := range pods {
		if !Ended(pod) {
			out = append(out, candidate(by, layout, pod, figures[string(pod.UID)], unlinked[pod.UID]))
		}
	}
	slices.SortStableFunc(out, func(a, b Candidate) int {
		return cmp.Or(
			later(a.Not != "", b.Not != ""), later(!a.Exceeds, !b.Exceeds), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.Usage-b.Request, a.Usage-a.Request), strings.Compare(string(a.Pod.UID), string(b.Pod.UID)),
		)
	})
	return out
}

func candidate(by pressure.Signal, layout threshold.Layout, pod *v1.Pod, stats *statsapi.PodStats, unlinked []Unlinked) Candidate {
	pod = Allocated(pod)
	c := Candidate{Pod: pod, Not: Spared(pod)}
	if pod.Spec.Priority != nil {
		c.Priority = *pod.Spec.Priority
	}
	if stats == nil {
		c.Unknown = c.Not == ""
		c.Not = cmp.Or(c.Not, "stats has no figures of it")
		return c
	}
	usage, known := usageOf(by, layout, pod, stats)
	if !known {
		c.Not = cmp.Or(c.Not, "stats does not say how much it uses")
		return c
	}
	if pressure.KindOf(by.Name) == pressure.Disk {
		var more int64
		more, c.Unlinked = unlinkedOf(by, layout, unlinked)
		usage += more
	}
	c.Usage = usage
	switch ResourceOf(by.Name) {
	case pids:
		// Everybody counts as exceeding: nobody asks for processes.
		c.Exceeds = true
	case inodes:
		c.Exceeds = c.Usage > 0
	default:
		c.Request = request(pod, ResourceOf(by.Name))
		c.Exceeds = c.Usage > c.Request
	}
	return c
}

// later orders false before true.
func later(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// usageOf is what a pod uses of what a signal is about; known is whether anything
// was measured that can be true.
func usageOf(by pressure.Signal, layout threshold.Layout, pod *v1.Pod, s *statsapi.PodStats) (usage int64, known bool) {
	var measured *uint64
	switch {
	case pressure.KindOf(by.Name) == pressure.Memory:
		if s.Memory != nil {
			measured = s.Memory.WorkingSetBytes
		}
	case by.Name == threshold.PID:
		if s.ProcessStats != nil {
			measured = s.ProcessStats.ProcessCount
		}
	default:
		return storage(partsOf(by.Name, layout), ResourceOf(by.Name), pod, s), true
	}
	if measured == nil || by.Capacity > 0 && *measured > by.Capacity {
		return 0, false
	}
	return whole(*measured), true
}

// request is what a pod asked for, with its overhead if it asked for anything.
func request(pod *v1.Pod, name v1.ResourceName) int64 {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{
		SkipContainerLevelResources: resource.IsPodLevelResourcesSet(pod), ExcludeOverhead: true,
	})
	sum := requests[name]
	if overhead, ok := pod.Spec.Overhead[name]; ok && !sum.IsZero() {
		sum.Add(overhead)
	}
	return sum.Value()
}

// whole is a figure as a signed number; nothing that is measured is larger.
func whole(n uint64) int64 { return int64(min(n, 1<<62)) }
