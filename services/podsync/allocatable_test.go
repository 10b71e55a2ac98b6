package podsync

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/cgroup"
)

func TestAllPodsTogetherMayUseTheMachineWithoutWhatIsReserved(t *testing.T) {
	node := &v1.Node{}
	node.Status.Capacity = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1000"), "hugepages-2Mi": resource.MustParse("4Mi"), "example.com/gpu": resource.MustParse("1"),
	}
	s := &Service{cfg: Config{
		EnforcePods: true, ReservedMilliCPU: 1500, ReservedMemoryBytes: 100, ReservedPIDs: 10,
		Enforced: []Reservation{{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 500}},
	}}
	s.node.Store(node)
	got := s.limits()
	if got.PIDs <= 0 || got.PIDs != mostProcesses()-10 {
		t.Errorf("%d processes of %d", got.PIDs, mostProcesses())
	}
	got.PIDs = 0
	want := cgroup.Limits{
		MilliCPU: 2500, MemoryBytes: 900, HugePages: map[int64]int64{2 << 20: 4 << 20},
		Reserved: []cgroup.Reserved{{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 500}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	s.cfg.EnforcePods = false
	if got := s.limits(); got.MilliCPU != 0 || len(got.Reserved) != 1 {
		t.Errorf("without pods: %+v", got)
	}
}
