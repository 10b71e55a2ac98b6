package nodecgroups

import (
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/host/capacity"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

func TestAllPodsTogetherMayUseTheMachineWithoutWhatIsReserved(t *testing.T) {
	b := newBench()
	b.capacity = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1000"), "hugepages-2Mi": resource.MustParse("4Mi"), "example.com/gpu": resource.MustParse("1"),
	}
	c := b.cgroups(Config{
		EnforcePods: true, ReservedMilliCPU: 1500, ReservedMemoryBytes: 100, ReservedPIDs: 10,
		Enforced: []cgroup.Reserved{{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 500}},
	}, prometheus.NewRegistry())
	got := c.limits()
	if got.PIDs <= 0 || got.PIDs != capacity.Processes()-10 {
		t.Errorf("%d processes of %d", got.PIDs, capacity.Processes())
	}
	got.PIDs = 0
	want := cgroup.Limits{
		MilliCPU: 2500, MemoryBytes: 900, HugePages: map[int64]int64{2 << 20: 4 << 20},
		Reserved: []cgroup.Reserved{{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 500}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	c.cfg.EnforcePods = false
	if got := c.limits(); got.MilliCPU != 0 || len(got.Reserved) != 1 {
		t.Errorf("without pods: %+v", got)
	}
}
