package podsync

import (
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
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

func TestTheRuntimeSaysWhichCgroupDriverThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			runtime fakecri.Config
			down    bool
			driver  cgroup.Driver
			losing  int
		}{
			"it does not know the question": {fakecri.Config{NoRuntimeConfig: true}, false, "configured", 1},
			"it says":                       {fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}, false, cgroup.Cgroupfs, 0},
			"it has the other":              {fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}, false, cgroup.Systemd, 0},
			"it does not answer":            {fakecri.Config{}, true, "", 0},
		} {
			reg := prometheus.NewPedanticRegistry()
			rt := fakecri.New(tc.runtime)
			s := start(t, rt, reg, health.Discard())
			s.cfg.CgroupDriver = "configured"
			rt.SetDown(tc.down)
			driver, err := s.askDriver(t.Context())
			if driver != tc.driver || (err != nil) != tc.down {
				t.Errorf("%s: %q, %v", name, driver, err)
			}
			if n, err := testutil.GatherAndCount(reg, "kubelet_cri_losing_support"); err != nil || n != tc.losing {
				t.Errorf("%s: %d series, %v", name, n, err)
			}
		}
	})
}
