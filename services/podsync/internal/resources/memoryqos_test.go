package resources

import (
	"fmt"
	"maps"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// memoryPod asks for so much of memory and may have so much; without CPU limits it is no
// guaranteed one.
func memoryPod(request, limit string, guaranteed bool) *v1.Pod {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if request != "" {
		r.Requests[v1.ResourceMemory] = resource.MustParse(request)
	}
	if limit != "" {
		r.Limits[v1.ResourceMemory] = resource.MustParse(limit)
	}
	if guaranteed {
		r.Requests[v1.ResourceCPU], r.Limits[v1.ResourceCPU] = resource.MustParse("1"), resource.MustParse("1")
	}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: r}}}}
}

func TestMemoryIsProtectedByClassAndSlowedDownBetweenRequestAndLimit(t *testing.T) {
	const mi, allocatable = 1 << 20, 1000 << 20
	page := int64(os.Getpagesize())
	high := func(n float64) string { return fmt.Sprint(int64(n) / page * page) }
	zero := func(more map[string]string) map[string]string {
		out := map[string]string{"memory.min": "0", "memory.low": "0"}
		maps.Copy(out, more)
		return out
	}
	for name, c := range map[string]struct {
		qos  MemoryQoS
		pod  *v1.Pod
		node int64
		want map[string]string
	}{
		"without the gate":             {MemoryQoS{Tiered: true, Factor: .9}, memoryPod("64Mi", "128Mi", false), allocatable, nil},
		"guaranteed":                   {MemoryQoS{On: true, Tiered: true, Factor: .9}, memoryPod("64Mi", "64Mi", true), allocatable, map[string]string{"memory.min": "67108864"}},
		"burstable":                    {MemoryQoS{On: true, Tiered: true, Factor: .9}, memoryPod("64Mi", "128Mi", false), allocatable, map[string]string{"memory.low": "67108864", "memory.high": high((64 + 64*.9) * mi)}},
		"burstable, as much":           {MemoryQoS{On: true, Tiered: true, Factor: .9}, memoryPod("64Mi", "64Mi", false), allocatable, map[string]string{"memory.low": "67108864"}},
		"no limit":                     {MemoryQoS{On: true, Tiered: true, Factor: .5}, memoryPod("64Mi", "", false), allocatable, map[string]string{"memory.low": "67108864", "memory.high": high((64 + 936*.5) * mi)}},
		"no limit, the node not known": {MemoryQoS{On: true, Tiered: true, Factor: .5}, memoryPod("64Mi", "", false), 0, map[string]string{"memory.low": "67108864"}},
		"nothing is asked for":         {MemoryQoS{On: true, Tiered: true, Factor: .9}, memoryPod("", "", false), allocatable, zero(nil)},
		"without reservation":          {MemoryQoS{On: true, Factor: .9}, memoryPod("64Mi", "128Mi", false), allocatable, zero(map[string]string{"memory.high": high((64 + 64*.9) * mi)})},
		"guaranteed, without":          {MemoryQoS{On: true, Factor: .9}, memoryPod("64Mi", "64Mi", true), allocatable, zero(nil)},
		"the node is smaller":          {MemoryQoS{On: true, Factor: .9}, memoryPod("64Mi", "", false), 32 * mi, zero(nil)},
	} {
		if got := c.qos.Container(c.pod, &c.pod.Spec.Containers[0], c.node); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAContainerThatIsResizedToItsLimitIsSlowedDownNoLonger(t *testing.T) {
	pod := memoryPod("64Mi", "64Mi", false)
	q := MemoryQoS{On: true, Factor: .9}
	if got := q.Resized(pod, &pod.Spec.Containers[0], 0)["memory.high"]; got != "max" {
		t.Errorf("memory.high %q", got)
	}
	if got := (MemoryQoS{}).Resized(pod, &pod.Spec.Containers[0], 0); len(got) != 0 {
		t.Errorf("without the gate %v", got)
	}
}

func TestWhatIsProtectedOfAPodIsWhatItAsksFor(t *testing.T) {
	q := MemoryQoS{On: true, Tiered: true}
	overhead := memoryPod("64Mi", "64Mi", true)
	overhead.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	for name, c := range map[string]struct {
		q        MemoryQoS
		pod      *v1.Pod
		min, low int64
	}{
		"guaranteed, with its overhead": {q, overhead, 65 << 20, 0},
		"burstable":                     {q, memoryPod("64Mi", "", false), 0, 64 << 20},
		"best effort":                   {q, memoryPod("", "", false), 0, 0},
		"without reservation":           {MemoryQoS{On: true}, overhead, 0, 0},
		"without the gate":              {MemoryQoS{Tiered: true}, overhead, 0, 0},
	} {
		if minimum, low := c.q.Pod(c.pod); minimum != c.min || low != c.low {
			t.Errorf("%s: %d and %d", name, minimum, low)
		}
	}
	guaranteed, burstable := MemoryAsked([]*v1.Pod{overhead, memoryPod("1Mi", "", false), memoryPod("2Mi", "", false), memoryPod("", "", false)})
	if guaranteed != 65<<20 || burstable != 3<<20 {
		t.Errorf("together %d and %d", guaranteed, burstable)
	}
}
