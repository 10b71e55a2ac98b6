package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var pod = Pod{Namespace: "a", Name: "p", UID: "u"}

func TestASnapshotReplacesAndAChangeAdds(t *testing.T) {
	var table Table
	table.Apply(Change{Snapshot: true, Sandboxes: []Sandbox{{ID: "s1", Pod: pod, Ready: true}}, Containers: []Container{{ID: "c1", Pod: pod, Name: "x", Running: true}}})
	before := table.View()
	table.Apply(Change{Containers: []Container{{ID: "c2", Pod: pod, Name: "y", Running: true}}, RemovedIDs: []string{"c1"}})
	if _, ok := before.Containers["c2"]; ok || len(before.Containers) != 1 {
		t.Error("a view changed after it was handed out")
	}
	after := table.View()
	if _, ok := after.Containers["c1"]; ok || len(after.Containers) != 1 {
		t.Errorf("containers %v; want only c2", after.Containers)
	}
	if after.Version <= before.Version {
		t.Errorf("version went from %d to %d", before.Version, after.Version)
	}
	table.Apply(Change{Snapshot: true})
	if v := table.View(); len(v.Containers)+len(v.Sandboxes) != 0 {
		t.Errorf("an empty snapshot left %v", v)
	}
}

func TestPresentPodsHaveTheNewestSandboxAndWhatRuns(t *testing.T) {
	var table Table
	table.Apply(Change{
		Snapshot: true,
		Sandboxes: []Sandbox{
			{ID: "old", Pod: pod, Attempt: 0, Ready: true}, {ID: "new", Pod: pod, Attempt: 1, Ready: true},
			{ID: "dead", Pod: Pod{Namespace: "a", Name: "q", UID: "v"}},
		},
		Containers: []Container{
			{ID: "x0", Pod: pod, Name: "x", Attempt: 0, Running: true}, {ID: "x1", Pod: pod, Name: "x", Attempt: 1},
			{ID: "y0", Pod: pod, Name: "y", Attempt: 0, Running: true},
		},
		Volumes: []PodVolumes{{Pod: pod, Volumes: []Volume{{Name: "data"}}}},
	})
	want := []PresentPod{{
		Sandbox:    Sandbox{ID: "new", Pod: pod, Attempt: 1, Ready: true},
		Containers: []Container{{ID: "y0", Pod: pod, Name: "y", Running: true}},
		Volumes:    []Volume{{Name: "data"}},
	}}
	if diff := cmp.Diff(want, table.View().Pods()); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
