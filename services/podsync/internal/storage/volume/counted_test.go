package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/projectquota"
)

// projects are Projects; the directories keep theirs.
type projects struct {
	given map[string]uint32
	next  uint32
	has   projectquota.Usage
	fails error
}

func (p *projects) Give(dir string) (uint32, error) {
	if p.fails != nil {
		return 0, p.fails
	}
	if p.given[dir] == 0 {
		p.next++
		p.given[dir] = p.next
	}
	return p.given[dir], nil
}

func (p *projects) Usage(dir string, id uint32) (projectquota.Usage, error) {
	if _, err := os.Lstat(dir); err != nil {
		return projectquota.Usage{}, err
	}
	if p.given[dir] != id {
		return projectquota.Usage{}, errors.New("another project")
	}
	return p.has, nil
}

// counting is a fixture on a filesystem that counts by projects, with the gate on.
func counting(t *testing.T) (*fixture, *projects) {
	t.Helper()
	f := newFixture(t)
	p := &projects{given: map[string]uint32{}, next: projectquota.First, has: projectquota.Usage{Bytes: 7, Inodes: 2}}
	f.set.cfg.ProjectQuotas, f.set.deps.Projects = true, p
	return f, p
}

// again is it after a restart.
func (f *fixture) again(p *projects, gate bool) {
	f.set = f.restarted()
	f.set.cfg.ProjectQuotas, f.set.deps.Projects = gate, p
}

// ofOwnUsers gives a pod a user namespace, or not.
func ofOwnUsers(pod *v1.Pod, own bool) *v1.Pod {
	host := !own
	pod.Spec.HostUsers = &host
	return pod
}

func (f *fixture) isCounted(t *testing.T, name string) bool {
	t.Helper()
	shown := false
	for _, info := range f.set.Volumes("uid-1") {
		shown = shown || info.Name == name && info.Counted
	}
	got, err := f.set.Usage(t.Context(), "uid-1", name)
	switch {
	case err == nil && shown:
		if got.Used != 7 || got.InodesUsed != 2 || got.Driver != "kubernetes.io/empty-dir" {
			t.Errorf("of %s: %+v", name, got)
		}
	case errors.Is(err, ErrNotDriven) && !shown:
	default:
		t.Errorf("%s is shown as counted: %v; its usage: %+v, %v", name, shown, got, err)
	}
	return shown
}

func TestTheEmptyDirOfAPodWithItsOwnUsersIsCountedByAProject(t *testing.T) {
	memory := emptyDirVolume("e")
	memory.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
	for name, c := range map[string]struct {
		pod      *v1.Pod
		gate     bool
		fails    error
		counted  bool
		projects int
	}{
		"with its own users":          {pod: ofOwnUsers(podWith(emptyDirVolume("e")), true), gate: true, counted: true, projects: 1},
		"with the gate off":           {pod: ofOwnUsers(podWith(emptyDirVolume("e")), true)},
		"with the host's users":       {pod: ofOwnUsers(podWith(emptyDirVolume("e")), false), gate: true},
		"that does not say":           {pod: podWith(emptyDirVolume("e")), gate: true},
		"where nothing is counted":    {pod: ofOwnUsers(podWith(emptyDirVolume("e")), true), gate: true, fails: projectquota.ErrNone},
		"whose volume is memory":      {pod: ofOwnUsers(podWith(memory), true), gate: true},
		"whose volume is a configMap": {pod: ofOwnUsers(podWith(configMapVolume("e", "cm")), true), gate: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := counting(t)
			f.objects.setMap("cm", map[string]string{"k": "v"})
			f.set.cfg.ProjectQuotas, p.fails = c.gate, c.fails
			if err := f.set.Setup(t.Context(), c.pod); err != nil {
				t.Fatal(err)
			}
			if got := f.isCounted(t, "e"); got != c.counted || len(p.given) != c.projects {
				t.Errorf("counted: %v, of projects %v", got, p.given)
			}
			for _, one := range f.set.Standings(c.pod, false) {
				if (one.Project != 0) != c.counted {
					t.Errorf("it stands as %+v", one)
				}
			}
		})
	}
}

func TestAnEmptyDirIsCountedAfterARestartAlsoBeforeItsPodIsKnown(t *testing.T) {
	f, p := counting(t)
	pod := ofOwnUsers(podWith(emptyDirVolume("e")), true)
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.again(p, true)
	if got, err := f.set.Usage(t.Context(), "uid-1", "e"); err != nil || got.Used != 7 {
		t.Errorf("before its pod is known: %+v, %v", got, err)
	}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if !f.isCounted(t, "e") {
		t.Error("it is not counted any more")
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.set.Usage(t.Context(), "uid-1", "e"); !errors.Is(err, ErrNotDriven) {
		t.Errorf("when it is gone: %v", err)
	}
}

// TestWithTheGateOffNoEmptyDirIsCounted: whoever has reason to turn it off has reason for the
// pods that run. On again, those are counted that were from their beginning.
func TestWithTheGateOffNoEmptyDirIsCounted(t *testing.T) {
	f, p := counting(t)
	pod := ofOwnUsers(podWith(emptyDirVolume("e")), true)
	for _, gate := range []bool{true, false, true} {
		f.again(p, gate)
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if is := f.isCounted(t, "e"); is != gate {
			t.Errorf("with the gate %v it is counted: %v", gate, is)
		}
		if _, err := f.set.Usage(t.Context(), "uid-1", "e"); (err == nil) != gate || err != nil && !errors.Is(err, ErrNotDriven) {
			t.Errorf("with the gate %v: %v", gate, err)
		}
	}
}

// TestAnEmptyDirThatWasThereBeforeTheGateIsWalked: what is in it already would not count.
func TestAnEmptyDirThatWasThereBeforeTheGateIsWalked(t *testing.T) {
	f, p := counting(t)
	f.set.cfg.ProjectQuotas = false
	pod := ofOwnUsers(podWith(emptyDirVolume("e")), true)
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir, _ := f.set.HostPath("uid-1", "e")
	f.again(p, true)
	p.given[dir] = projectquota.First // somebody else's, as a kubelet does
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if f.isCounted(t, "e") {
		t.Error("it is counted")
	}
}

func TestACrashBeforeAnEmptyDirIsReadyCostsNoProject(t *testing.T) {
	f, p := counting(t)
	pod := ofOwnUsers(podWith(emptyDirVolume("e")), true)
	dir := f.set.volumeDir("uid-1", pluginEmptyDir, "e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.given[dir] = projectquota.First + 5
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(f.set.readyFile("uid-1", "e")); err != nil || string(text) != "project 1048582\n" || !f.isCounted(t, "e") {
		t.Errorf("it says %q, %v", text, err)
	}
}

func TestTheDirectoryOfAPodOfTheHostsUsersIsNotMeasuredByAProjectThatItHas(t *testing.T) {
	f, p := counting(t)
	if err := f.set.Setup(t.Context(), ofOwnUsers(podWith(emptyDirVolume("e")), true)); err != nil {
		t.Fatal(err)
	}
	f.again(p, true)
	if err := f.set.Setup(t.Context(), ofOwnUsers(podWith(emptyDirVolume("e")), false)); err != nil {
		t.Fatal(err)
	}
	if f.isCounted(t, "e") {
		t.Error("it is measured by it")
	}
}

func TestWhatAReadyFileSaysThatIsNoProjectIsNone(t *testing.T) {
	f, p := counting(t)
	ready := f.set.readyFile("uid-1", "e")
	if err := os.MkdirAll(filepath.Dir(ready), 0o755); err != nil {
		t.Fatal(err)
	}
	p.given[f.set.volumeDir("uid-1", pluginEmptyDir, "e")] = 1
	for _, text := range []string{"", "project ", "project 0\n", "project -1\n", "project 4294967296\n", "projects 1\n", "1\n"} {
		if err := os.WriteFile(ready, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.set.Usage(t.Context(), "uid-1", "e"); !errors.Is(err, ErrNotDriven) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, name := range []string{"..", "a/b", ""} {
		if _, err := f.set.Usage(t.Context(), "uid-1", name); !errors.Is(err, ErrNotDriven) {
			t.Errorf("volume %q: %v", name, err)
		}
	}
}
