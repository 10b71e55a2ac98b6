package sampler

import (
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/model"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// populated is a tree of cgroups with processes, by cgroup.
type populated struct {
	Cgroups
	pids map[string][]int
}

func (c populated) Exists(string) bool { return true }

func (c populated) Walk(string, func(string) bool) (names []string, err error) {
	for name := range c.pids {
		names = append(names, name)
	}
	return names, nil
}

func (c populated) PIDs(name string) []int { return c.pids[name] }

func (c populated) Read(string, cgroup.Part) (*model.ContainerStats, error) { return nil, nil } //nolint:nilnil // Nobody asks.

func TestAPodThatHasProcessesInAContainerNobodyHasNamedIsFound(t *testing.T) {
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	names := &inventory.Table{}
	names.Apply(inventory.Change{Snapshot: true, Sandboxes: []inventory.Sandbox{{ID: id("5"), Pod: inventory.Pod{UID: "e"}}}, Containers: []inventory.Container{
		{ID: id("1"), Name: "c", Running: true, Pod: inventory.Pod{UID: "a"}},
		{ID: id("2"), Name: "c", Pod: inventory.Pod{UID: "b"}}, // It has begun to run since.
	}})
	tree := populated{pids: map[string][]int{
		"/kubepods/poda": nil, path.Join("/kubepods/poda", id("1")): {1},
		path.Join("/kubepods/podb", id("2")):                                                   {2},
		path.Join("/kubepods.slice/kubepods-podc_c.slice", "cri-containerd-"+id("3")+".scope"): {3},
		path.Join("/kubepods/podd", id("4")):                                                   nil, // It has ended.
		path.Join("/kubepods/pode", id("5")):                                                   {5},
		path.Join("/somewhere", id("6")):                                                       {6},
	}}
	m := New(Roots{Pods: "/kubepods"}, Deps{Cgroups: tree, Names: names, Machine: nil})
	got, err := m.Beside(map[string]bool{id("1"): true})
	if want := map[string]bool{"b": true, "c-c": true}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
