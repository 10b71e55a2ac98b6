package podcache

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func pod(uid types.UID, name string, created time.Time, ending bool) Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid, CreationTimestamp: metav1.NewTime(created)}}
	if ending {
		p.DeletionTimestamp = &metav1.Time{Time: created}
	}
	return Pod{Pod: p, Status: v1.PodStatus{Phase: v1.PodRunning}}
}

func static(p Pod) Pod {
	p.Static = true
	return p
}

func TestOfTwoPodsOfANameTheOneThatStaysIsMeant(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		pods []Pod
		want types.UID
	}{
		"ending and new":      {[]Pod{pod("a", "p", now.Add(time.Hour), true), pod("b", "p", now, false)}, "b"},
		"older and newer":     {[]Pod{pod("a", "p", now, false), pod("b", "p", now.Add(time.Hour), false)}, "b"},
		"another name":        {[]Pod{pod("a", "q", now, false), pod("b", "p", now, true)}, "b"},
		"static ones":         {[]Pod{static(pod("b", "p", now.Add(time.Hour), false)), static(pod("a", "p", now, false))}, "a"},
		"of the same instant": {[]Pod{pod("b", "p", now, false), pod("a", "p", now, false)}, "b"},
	} {
		synctest.Test(t, func(t *testing.T) {
			pods := NewPods(1)
			for _, p := range c.pods {
				pods.Set(p)
				time.Sleep(time.Millisecond) // no two are seen at the same time
			}
			if got, ok := pods.ByName("default", "p"); !ok || got.Pod.UID != c.want {
				t.Errorf("%s: %v %v, want %s", name, got.Pod, ok, c.want)
			}
		})
	}
}

func TestARemovedPodIsShownNoMoreAndItsNameIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := NewPods(1)
		pods.Set(pod("b", "two", time.Time{}, false))
		pods.Set(pod("a", "one", time.Time{}, false))
		if list := pods.List(); len(list) != 2 || list[0].Pod.UID != "a" {
			t.Fatalf("List: %v", list)
		}
		sub := pods.Subscribe(t.Context())
		defer sub.Close()
		if frame, err := sub.Next(t.Context()); err != nil || !frame.Snapshot || len(frame.Changed) != 2 {
			t.Fatalf("snapshot: %+v %v", frame, err)
		}
		pods.Remove("a")
		pods.Remove("nobody")
		frame, err := sub.Next(t.Context())
		if err != nil || !cmp.Equal(frame.Removed, []Key{{UID: "a", Namespace: "default", Name: "one"}}) {
			t.Fatalf("removal: %+v %v", frame, err)
		}
		if _, ok := pods.Get("a"); ok {
			t.Fatal("still there")
		}
		if got, ok := pods.Get("b"); !ok || got.WithStatus().Status.Phase != v1.PodRunning || got.Pod.Status.Phase != "" {
			t.Fatalf("Get: %v %v", got, ok)
		}
	})
}

func TestTheTableKnowsWhatRuns(t *testing.T) {
	table := NewTable(1)
	table.SetPod("u",
		[]podstate.SandboxRow{{ID: "s0", UID: "u", Namespace: "n", Name: "p"}, {ID: "s1", UID: "u", Namespace: "n", Name: "p", Attempt: 1, Ready: true}},
		[]podstate.ContainerRow{{ID: "c0", UID: "u", Name: "c", State: podstate.StateExited}, {ID: "c1", UID: "u", Namespace: "n", PodName: "p", Name: "c", State: podstate.StateRunning}})
	if c, ok := table.Running("u", "c"); !ok || c.ID != "c1" {
		t.Errorf("Running: %v %v", c, ok)
	}
	if _, ok := table.Running("u", "d"); ok {
		t.Error("a container runs that is not there")
	}
	if c, ok := table.Container("u", "c0"); !ok || c.State != podstate.StateExited {
		t.Errorf("Container: %v %v", c, ok)
	}
	if s, ok := table.ReadySandbox("u"); !ok || s.ID != "s1" {
		t.Errorf("ReadySandbox: %v %v", s, ok)
	}
	if got := table.RunningPods(); len(got) != 1 || got[0].Name != "p" || len(got[0].Containers) != 1 {
		t.Errorf("RunningPods: %+v", got)
	}
	table.SetPod("u", nil, nil)
	if _, ok := table.ReadySandbox("u"); ok || len(table.RunningPods()) != 0 {
		t.Error("a removed pod is still there")
	}
}

func TestOnlyWhatChangedInTheTableIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(1)
		sandboxes := []podstate.SandboxRow{{ID: "s", UID: "u"}}
		table.SetPod("u", sandboxes, []podstate.ContainerRow{{ID: "c", UID: "u", Name: "c"}})
		table.SetVolumes(Volumes{UID: "u", Volumes: []Volume{{Name: "v"}}})
		sub := table.Subscribe(t.Context())
		defer sub.Close()
		if frame, err := sub.Next(t.Context()); err != nil || len(frame.Changed) != 3 {
			t.Fatalf("snapshot: %+v %v", frame, err)
		}
		table.SetVolumes(Volumes{UID: "u", Volumes: []Volume{{Name: "v"}}})
		table.SetPod("u", sandboxes, []podstate.ContainerRow{{ID: "c", UID: "u", Name: "c", State: podstate.StateRunning}})
		frame, err := sub.Next(t.Context())
		if err != nil || len(frame.Changed) != 1 || frame.Changed[EntryKey{ID: "c"}].Container.State != podstate.StateRunning {
			t.Fatalf("change: %+v %v", frame, err)
		}
		table.SetPod("u", sandboxes, nil)
		table.SetVolumes(Volumes{UID: "u"})
		frame, err = sub.Next(t.Context())
		if err != nil || len(frame.Removed) != 2 {
			t.Fatalf("removal: %+v %v", frame, err)
		}
	})
}

func TestALinksNameIsCutBeforeItsSuffix(t *testing.T) {
	name := LogLink(strings.Repeat("p", 253), "ns", "c", strings.Repeat("f", 64))
	if len(name) != longestName || !strings.HasSuffix(name, ".log") {
		t.Errorf("%d characters: %s", len(name), name)
	}
}
