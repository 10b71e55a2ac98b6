package inventory

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// Else a pod had used nothing of the disk while podsync was looking, and another went for it.
func TestVolumesStandOverARestartOfPodsyncUntilItSaysWhatThereIsOfThem(t *testing.T) {
	torn := Pod{UID: "torn"}
	sandboxes := []Sandbox{{ID: "s", Pod: pod}, {ID: "t", Pod: torn}}
	volumes := func(p Pod, names ...string) (out PodVolumes) {
		out.Pod = p
		for _, name := range names {
			out.Volumes = append(out.Volumes, Volume{Name: name})
		}
		return out
	}
	var table Table
	wants := func(when string, want ...PodVolumes) {
		t.Helper()
		all := map[string]PodVolumes{}
		for _, v := range want {
			all[v.Pod.UID] = v
		}
		if diff := cmp.Diff(all, table.View().Volumes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	table.Apply(Change{Epoch: 1, Snapshot: true, Sandboxes: sandboxes, Volumes: []PodVolumes{volumes(pod, "a"), volumes(torn, "b")}})
	table.Apply(Change{Epoch: 2, Snapshot: true, Sandboxes: sandboxes})
	wants("it was started anew", volumes(pod, "a"), volumes(torn, "b"))
	table.Apply(Change{Volumes: []PodVolumes{volumes(pod, "new")}})
	wants("it has looked at one", volumes(pod, "new"), volumes(torn, "b"))
	table.Apply(Change{Epoch: 2, Snapshot: true, Sandboxes: sandboxes})
	wants("its stream was broken, and it has that one's no more", volumes(torn, "b"))
	table.Apply(Change{Volumes: []PodVolumes{volumes(pod, "new")}})
	table.Apply(Change{RemovedIDs: []string{"s", "t"}})
	wants("nothing is left of both", volumes(pod, "new"))
}

// As of a pod that waits for its first sandbox, or for another after its last was removed.
func TestVolumesOfAPodThatTheRuntimeHasNothingOfStandWhileAPodsyncThatWasStartedAnewLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits, gone := Pod{UID: "waits"}, Pod{UID: "gone"}
		of := func(p Pod) PodVolumes { return PodVolumes{Pod: p, Volumes: []Volume{{Name: "v"}}} }
		var table Table
		wants := func(when string, want ...string) {
			t.Helper()
			if have := slices.Sorted(maps.Keys(table.View().Volumes)); !slices.Equal(have, want) {
				t.Errorf("%s: %q, want %q", when, have, want)
			}
		}
		table.Apply(Change{Epoch: 1, Snapshot: true, Sandboxes: []Sandbox{{ID: "g", Pod: gone}}, Volumes: []PodVolumes{of(waits), of(gone)}})
		table.Apply(Change{Epoch: 2, Snapshot: true})
		wants("it was started anew", "gone", "waits")
		time.Sleep(time.Minute)
		table.Apply(Change{Epoch: 2, Snapshot: true})
		table.Apply(Change{Volumes: []PodVolumes{of(waits)}})
		wants("it has looked at one, over a broken stream", "gone", "waits")
		before, changed := table.Follow()
		time.Sleep(lookedFor - time.Minute)
		wants("it says nothing of the other, which was removed while it was away", "waits")
		if after := table.View(); after.Version <= before.Version || len(before.Volumes) != 2 {
			t.Errorf("version %d is followed by %d, and what was handed out has %d", before.Version, after.Version, len(before.Volumes))
		}
		select {
		case <-changed:
		default:
			t.Error("who follows is not told")
		}
	})
}

// TestEachPodsyncHasItsOwnTimeToLook, the last of several that were started soon after another, too.
func TestEachPodsyncHasItsOwnTimeToLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		wants := func(when string, want int) {
			t.Helper()
			if have := table.View().Volumes; len(have) != want {
				t.Errorf("%s: there are %v, want %d", when, have, want)
			}
		}
		waits := PodVolumes{Pod: Pod{UID: "waits"}, Volumes: []Volume{{Name: "v"}}}
		table.Apply(Change{Epoch: 1, Snapshot: true, Volumes: []PodVolumes{waits}})
		table.Apply(Change{Epoch: 2, Snapshot: true})
		time.Sleep(lookedFor - time.Second)
		table.Apply(Change{Epoch: 3, Snapshot: true})
		time.Sleep(lookedFor - time.Second)
		wants("the third podsync is looking yet", 1)
		table.Apply(Change{Epoch: 3, Snapshot: true})
		wants("its stream was broken", 1)
		time.Sleep(time.Second)
		wants("the third has had its time", 0)

		table.Apply(Change{Epoch: 3, Volumes: []PodVolumes{waits}})
		table.Apply(Change{Epoch: 4, Snapshot: true})
		time.Sleep(lookedFor)
		table.Apply(Change{Epoch: 5, Snapshot: true})
		wants("the fourth had had its time when the fifth was started", 0)
	})
}

func TestPresentPodsHaveTheNewestSandboxAndWhatRuns(t *testing.T) {
	var table Table
	table.Apply(Change{
		Snapshot: true,
		Sandboxes: []Sandbox{
			{ID: "old", Pod: pod, Attempt: 0, Ready: true},
			{ID: "new", Pod: pod, Attempt: 1, Ready: true},
			{ID: "dead", Pod: Pod{Namespace: "a", Name: "q", UID: "v"}},
		},
		Containers: []Container{
			{ID: "x0", Pod: pod, Name: "x", Attempt: 0, Running: true},
			{ID: "x1", Pod: pod, Name: "x", Attempt: 1},
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

// The runtime keeps the newest end of each container, and more until the next reclaim. A pod
// without a sandbox, as while none can be made, has its volumes.
func TestKeptPodsHaveWhatHasEndedAndNeedNoSandbox(t *testing.T) {
	var table Table
	bare, over := Pod{Namespace: "b", Name: "bare", UID: "v"}, Pod{Namespace: "b", Name: "over", UID: "w"}
	table.Apply(Change{
		Snapshot:  true,
		Sandboxes: []Sandbox{{ID: "s", Pod: pod, Ready: true}, {ID: "dead", Pod: over}, {ID: "nothing", Pod: Pod{UID: "x"}}},
		Containers: []Container{
			{ID: "x0", Pod: pod, Name: "x"},
			{ID: "x1", Pod: pod, Name: "x", Attempt: 1, Running: true},
			{ID: "y2", Pod: pod, Name: "y", Attempt: 2},
			{ID: "y0", Pod: pod, Name: "y"},
			{ID: "y1", Pod: pod, Name: "y", Attempt: 1, Running: true},
			{ID: "z", Pod: over, Name: "z"},
		},
		Volumes: []PodVolumes{{Pod: bare, Volumes: []Volume{{Name: "data"}}}},
	})
	want := []PresentPod{
		{
			Sandbox:    Sandbox{ID: "s", Pod: pod, Ready: true},
			Containers: []Container{{ID: "x1", Pod: pod, Name: "x", Attempt: 1, Running: true}},
			Ended:      []Container{{ID: "y2", Pod: pod, Name: "y", Attempt: 2}},
			Older:      []Container{{ID: "x0", Pod: pod, Name: "x"}, {ID: "y1", Pod: pod, Name: "y", Attempt: 1, Running: true}, {ID: "y0", Pod: pod, Name: "y"}},
		},
		{Sandbox: Sandbox{Pod: bare}, Volumes: []Volume{{Name: "data"}}},
		{Sandbox: Sandbox{Pod: over}, Ended: []Container{{ID: "z", Pod: over, Name: "z"}}},
	}
	if diff := cmp.Diff(want, table.View().Kept()); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// One that ends as soon as it has started may be told to have ended after it was created.
func TestAContainerIsOverSinceItWasHeardFirstThatItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		began := time.Now()
		for _, step := range []struct {
			c        Container
			snapshot bool
			want     time.Time
		}{
			{Container{}, true, time.Time{}},
			{Container{Ended: true}, false, began.Add(time.Second)},
			{Container{Ended: true}, true, began.Add(time.Second)}, // podsync was restarted.
			{Container{Running: true}, false, time.Time{}},
			{Container{Ended: true}, false, began.Add(4 * time.Second)},
		} {
			step.c.ID = "c"
			table.Apply(Change{Snapshot: step.snapshot, Containers: []Container{step.c}})
			if got := table.View().Containers["c"].Over; !got.Equal(step.want) {
				t.Errorf("%+v: over since %v, want %v", step.c, got, step.want)
			}
			time.Sleep(time.Second)
		}
	})
}
