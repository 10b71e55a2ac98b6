package resources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAContainerSwapsInProportionToWhatItAsksFor(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		requests, limits v1.ResourceList
		change           func(*v1.Pod)
		memory, swap     int64
		want             int64
	}{
		"an eighth of the memory, an eighth of the swap": {list("memory", "1Gi"), nil, nil, 8 * gib, 4 * gib, gib / 2},
		"in whole pages, rounded down":                   {list("memory", "1000000"), list("memory", "1Gi"), nil, 8 * gib, 8 * gib, 244 * 4096},
		"guaranteed":                                     {list("memory", "1Gi", "cpu", "1"), list("memory", "1Gi", "cpu", "1"), nil, 8 * gib, 8 * gib, 0},
		"burstable only by its cpu":                      {list("memory", "1Gi", "cpu", "1"), list("memory", "1Gi"), nil, 8 * gib, 8 * gib, 0},
		"asks for no memory":                             {list("cpu", "1"), nil, nil, 8 * gib, 8 * gib, 0},
		"best effort":                                    {nil, nil, nil, 8 * gib, 8 * gib, 0},
		"critical": {list("memory", "1Gi"), nil, func(p *v1.Pod) {
			p.Spec.Priority = ptr.To(int32(2_000_000_000))
		}, 8 * gib, 8 * gib, 0},
		"no swap":                       {list("memory", "1Gi"), nil, nil, 8 * gib, 0, 0},
		"the node's memory is a riddle": {list("memory", "1Gi"), nil, nil, 0, 8 * gib, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", tc.requests, tc.limits)}}}
			if tc.change != nil {
				tc.change(p)
			}
			if got := Swap(p, &p.Spec.Containers[0], tc.memory, tc.swap); got != tc.want {
				t.Errorf("%d bytes of swap, want %d", got, tc.want)
			}
		})
	}
}
