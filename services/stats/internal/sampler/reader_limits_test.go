package sampler

import (
	"testing"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// swapping is a Cgroups of one limit of swap.
type swapping struct {
	Cgroups
	limit   uint64
	limited bool
}

func (s swapping) SwapLimit(string) (uint64, bool) { return s.limit, s.limited }
func (swapping) MemoryLimit(string) uint64         { return 0 }
func (swapping) Created(string) time.Time          { return time.Time{} }

func TestAContainersSwapEndsWithTheMachines(t *testing.T) {
	const machine = 100
	for what, c := range map[string]struct {
		kind    Kind
		cgroups swapping
		want    *uint64
	}{
		"no limit":           {Container, swapping{}, new(uint64(machine))},
		"less":               {Container, swapping{limit: 7, limited: true}, new(uint64(7))},
		"none":               {Container, swapping{limit: 0, limited: true}, new(uint64(0))},
		"more than there is": {Container, swapping{limit: 1000, limited: true}, new(uint64(machine))},
		"a pod's":            {Pod, swapping{}, nil},
	} {
		r := &reader{m: &Meter{deps: Deps{Cgroups: c.cgroups}}, machine: &model.MachineInfo{SwapCapacity: machine}}
		row := Row{Target: Target{Cgroup: "/x", Kind: c.kind}}
		r.limits(&row)
		if (row.SwapLimit == nil) != (c.want == nil) || c.want != nil && *row.SwapLimit != *c.want {
			t.Errorf("%s: %v, want %v", what, row.SwapLimit, c.want)
		}
	}
}
