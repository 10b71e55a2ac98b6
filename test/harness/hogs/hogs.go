// Package hogs has the pods that use up a node's memory in the tests that compare who goes
// with whom a kubelet let go (test/node/testdata/evictions/memory.txt), so that they are
// the same on each machine. It must never say who should go first: that is in the record.
package hogs

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// May is what all pods may use together, in MiB.
	May = 600
	// Keep is how much of that has to be left.
	Keep = 250
	// Go is how many of the hogs have to go until that much is left.
	Go = 4
	// each and pushed are what a hog takes, and the pod that makes the node short.
	each, pushed = 40, 226
)

// Classes are the classes of priority that the pods need, with their values.
func Classes() map[string]int32 { return map[string]int32{"mid": 1000, "high": 100000} }

// OfMemory are pods of three priorities and all classes of quality of service, made by app,
// and the one that makes the node short once they run: nobody may evict it, and it takes so
// much that Go of the others have to go.
func OfMemory(app func(name string, args ...string) *corev1.Pod) (all []*corev1.Pod, push *corev1.Pod) {
	for _, hog := range []struct{ name, class, request, limit string }{
		{"besteffort-low", "", "", ""},
		{"besteffort-mid", "mid", "", ""},
		{"besteffort-high", "high", "", ""},
		{"burstable-over", "", "16Mi", "128Mi"},
		{"burstable-within", "", "100Mi", "128Mi"},
		{"guaranteed", "", "100Mi", "100Mi"},
	} {
		p := app(hog.name, "take", fmt.Sprintf("mebibytes=%d", each))
		p.Spec.PriorityClassName = hog.class
		if hog.request != "" {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: memory(hog.request), Limits: memory(hog.limit)}
		}
		all = append(all, p)
	}
	push = app("push", "take", fmt.Sprintf("mebibytes=%d", pushed))
	push.Spec.PriorityClassName = "system-node-critical"
	return all, push
}

// Stay are the pods that nobody has to go before.
func Stay() []string { return []string{"burstable-within", "guaranteed", "push"} }

func memory(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse(amount)}
}

// EvictionsWithin is how many pods that a controller makes anew can be evicted in a time,
// where each takes none to be: two, and one after each back-off. When the node is not short
// any more, at the earliest after evictionPressureTransitionPeriod, it begins anew.
func EvictionsWithin(long time.Duration) int {
	n := 2
	for wait := 10 * time.Second; long > 0; wait = min(2*wait, 5*time.Minute) {
		if long -= wait; long > 0 {
			n++
		}
		if wait == 5*time.Minute && long > 0 { // the node may have been short of nothing meanwhile
			n, wait = n+2, 5*time.Second
		}
	}
	return n
}
