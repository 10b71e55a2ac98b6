package sampler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

var _ Cgroups = (*cgroup.Hierarchy)(nil)

// names is a Tree of cgroup names.
type names []string

func (n names) Exists(name string) bool {
	for _, x := range n {
		if x == name {
			return true
		}
	}
	return false
}

func (n names) Walk(root string, _ func(string) bool) ([]string, error) {
	var out []string
	for _, x := range n {
		if below(x, root) {
			out = append(out, x)
		}
	}
	return out, nil
}

func TestCgroupsGetTheirNamesFromPodsync(t *testing.T) {
	const id1, id2 = "1111111111111111111111111111111111111111111111111111111111111111", "2222222222222222222222222222222222222222222222222222222222222222"
	const stray = "3333333333333333333333333333333333333333333333333333333333333333"
	tree := names{"/kubepods", "/kubepods/podu", "/kubepods/podu/" + id1, "/kubepods/podu/" + id2, "/kubepods/podunknown", "/kubepods/podunknown/" + stray, "/runtime", "/k8s.io/loose"}
	pod, loose := inventory.Pod{Namespace: "ns", Name: "p", UID: "u"}, inventory.Pod{Namespace: "ns", Name: "q", UID: "w"}
	var table inventory.Table
	table.Apply(inventory.Change{
		Snapshot:   true,
		Sandboxes:  []inventory.Sandbox{{ID: id1, Pod: pod, Ready: true, CgroupParent: "/kubepods/podu"}, {ID: "loose", Pod: loose, Ready: true}},
		Containers: []inventory.Container{{ID: id2, SandboxID: id1, Pod: pod, Name: "web", Image: "img", Running: true}},
	})
	got, err := list(tree, Roots{Pods: "/kubepods", Groups: []string{"/runtime", "/absent"}}, table.View())
	if err != nil {
		t.Fatal(err)
	}
	want := []Target{
		{Cgroup: "/", Kind: Machine}, {Cgroup: "/runtime", Kind: Group}, {Cgroup: "/kubepods", Kind: Group},
		{Cgroup: "/kubepods/podu", Kind: Pod, Pod: pod},
		{Cgroup: "/kubepods/podu/" + id1, Kind: Sandbox, ID: id1, Pod: pod},
		{Cgroup: "/kubepods/podu/" + id2, Kind: Container, ID: id2, Pod: pod, Container: "web", Image: "img"},
		{Cgroup: "/kubepods/podunknown", Kind: Pod, Pod: inventory.Pod{UID: "unknown"}},
		{Cgroup: "/kubepods/podunknown/" + stray, Kind: Container, ID: stray},
		{Cgroup: "/k8s.io/loose", Kind: Sandbox, ID: "loose", Pod: loose},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

func TestPodsAreLookedForWhereTheRuntimesDriverPutsThem(t *testing.T) {
	const id = "1111111111111111111111111111111111111111111111111111111111111111"
	at := "/a.slice/a-kubepods.slice/a-kubepods-podu.slice/cri-containerd-" + id + ".scope"
	tree := names{"/kubepods", "/a.slice/a-kubepods.slice", at}
	pod := inventory.Pod{Namespace: "ns", Name: "p", UID: "u"}
	var table inventory.Table
	table.Apply(inventory.Change{Snapshot: true, PodsCgroup: "/a.slice/a-kubepods.slice", Sandboxes: []inventory.Sandbox{{ID: id, Pod: pod, Ready: true, CgroupParent: "a-kubepods-podu.slice"}}})
	table.Apply(inventory.Change{Snapshot: true, Sandboxes: []inventory.Sandbox{{ID: id, Pod: pod, Ready: true, CgroupParent: "a-kubepods-podu.slice"}}}) // a new podsync that has not asked yet
	got, err := list(tree, Roots{Pods: "/a/kubepods"}, table.View())
	if err != nil {
		t.Fatal(err)
	}
	want := []Target{{Cgroup: "/", Kind: Machine}, {Cgroup: "/a.slice/a-kubepods.slice", Kind: Group}, {Cgroup: at, Kind: Sandbox, ID: id, Pod: pod}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}
