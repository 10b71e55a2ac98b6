package nodecgroups

import (
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/host/capacity"
	"github.com/polylet/polylet/services/podsync/internal/resources"
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
	got, err := c.limits()
	if err != nil {
		t.Fatal(err)
	}
	if got.PIDs <= 0 || got.PIDs != capacity.Processes()-10 {
		t.Errorf("%d processes of %d", got.PIDs, capacity.Processes())
	}
	got.PIDs = 0
	want := cgroup.Limits{
		Tiers: &cgroup.Tiers{}, MilliCPU: 2500, MemoryBytes: 900, HugePages: map[int64]int64{2 << 20: 4 << 20},
		Reserved: []cgroup.Reserved{{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 500}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	c.cfg.EnforcePods = false
	if got, err := c.limits(); err != nil || got.MilliCPU != 4000 || got.MemoryBytes != 0 || got.PIDs != 0 || got.HugePages != nil || len(got.Reserved) != 1 {
		t.Errorf("without pods: %+v", got)
	}
}

func TestWhatIsLeftToAClassIsAllWithoutAPartOfWhatBetterOnesAskedFor(t *testing.T) {
	const mi = 1 << 20
	half, all, none := int64(50), int64(100), int64(0)
	protect := resources.MemoryQoS{On: true, Tiered: true}
	for name, c := range map[string]struct {
		cfg   Config
		known bool
		want  *cgroup.Tiers
	}{
		"nothing is asked for":      {Config{}, false, &cgroup.Tiers{}},
		"all of it":                 {Config{QOSReserved: &all}, true, &cgroup.Tiers{Burstable: 700 * mi, BestEffort: 500 * mi}},
		"a half":                    {Config{QOSReserved: &half}, true, &cgroup.Tiers{Burstable: 800 * mi, BestEffort: 700 * mi}},
		"nothing of it":             {Config{QOSReserved: &none}, true, &cgroup.Tiers{Burstable: 900 * mi, BestEffort: 900 * mi}},
		"what is reserved goes off": {Config{QOSReserved: &all, ReservedMemoryBytes: 600 * mi}, true, &cgroup.Tiers{Burstable: 100 * mi, BestEffort: 1 * mi}},
		"not all pods are known":    {Config{QOSReserved: &all}, false, nil},
		"protected":                 {Config{MemoryQoS: protect}, true, &cgroup.Tiers{Min: 400 * mi, Low: 200 * mi}},
		"protected, not known":      {Config{MemoryQoS: protect}, false, nil},
		"the gate alone":            {Config{MemoryQoS: resources.MemoryQoS{On: true}}, false, &cgroup.Tiers{}},
	} {
		b := newBench()
		b.capacity = v1.ResourceList{v1.ResourceMemory: resource.MustParse("900Mi")}
		b.guaranteed, b.burstable, b.allKnown = 200*mi, 200*mi, c.known
		if got, err := b.cgroups(c.cfg, prometheus.NewRegistry()).limits(); err != nil || !reflect.DeepEqual(got.Tiers, c.want) {
			t.Errorf("%s: %+v, want %+v, %v", name, got.Tiers, c.want, err)
		}
	}
}
