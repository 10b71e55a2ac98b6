package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWalkListsParentsFirstAndStopsAtLeaves(t *testing.T) {
	dir := t.TempDir()
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, name := range []string{"kubepods/burstable/poda/" + id + "/init.scope", "kubepods/podb", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := New(true, map[string]string{"": dir})
	got, err := h.Walk("/kubepods", LooksLikeContainer)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/kubepods", "/kubepods/burstable", "/kubepods/burstable/poda", "/kubepods/burstable/poda/" + id, "/kubepods/podb"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
	if got, err := h.Walk("/nothing", nil); err != nil || len(got) != 0 {
		t.Errorf("a cgroup that is not there: %v, %v; want nothing", got, err)
	}
}

func TestNamesOfCgroupsTellContainersAndPods(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, want := range map[string]struct {
		id, uid   string
		container bool
	}{
		"/kubepods/burstable/pod1-2/" + id:                                      {id: id, container: true},
		"/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-" + id + ".scope": {id: id, container: true},
		"/kubepods.slice/kubepods-pod1_2.slice/crio-" + id + ".scope":           {id: id, container: true},
		"/system.slice:cri-containerd:" + id:                                    {id: id, container: true},
		"/kubepods/besteffort/pod1-2":                                           {id: "pod1-2", uid: "1-2"},
		"/kubepods.slice/kubepods-burstable-pod1_2.slice":                       {id: "kubepods-burstable-pod1_2.slice", uid: "1-2"},
		"/kubepods/burstable":                                                   {id: "burstable"},
		"/kubepods.slice/kubepods-burstable.slice":                              {id: "kubepods-burstable.slice"},
	} {
		if got := ContainerID(name); got != want.id {
			t.Errorf("id of %s is %q; want %q", name, got, want.id)
		}
		if got := PodUID(name); got != want.uid && !want.container {
			t.Errorf("UID of %s is %q; want %q", name, got, want.uid)
		}
		if got := LooksLikeContainer(name); got != want.container {
			t.Errorf("%s looks like a container: %t; want %t", name, got, want.container)
		}
	}
}
