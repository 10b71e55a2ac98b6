package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// swapping is a Mounter beside which somebody works who exchanges what a path leads to as soon
// as it is known who answers for it.
type swapping struct {
	mount.Mounter
	exchange func(path string)
}

func (e swapping) AskedAt(path string) (string, error) {
	defer e.exchange(path)
	return e.Mounter.AskedAt(path)
}

func (e swapping) Reach(path string) (*os.File, string, error) {
	defer e.exchange(path)
	return e.Mounter.Reach(path)
}

// exchanges has a path, which is a directory, be exchanged for a file, once.
func (f *fixture) exchanges(t *testing.T, path string) {
	t.Helper()
	f.set.deps.Apart = &processes{do: func(context.Context) error { return errors.New("somebody is asked") }}
	f.set.deps.Mounter = swapping{f.set.deps.Mounter, func(string) {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			return
		}
		if err := errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Error(err)
		}
	}}
}

func TestWhatAPathOfTheHostIsIsSaidOfWhatWasReachedThere(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f.exchanges(t, dir)
	if err := f.set.Setup(t.Context(), podWith(hostPathVolume("v", dir, v1.HostPathDirectory))); err != nil {
		t.Error(err)
	}
}

func TestAPathOfTheHostIsMadeWhereItWasReached(t *testing.T) {
	for kind, is := range map[v1.HostPathType]func(os.FileInfo) bool{
		v1.HostPathDirectoryOrCreate: os.FileInfo.IsDir,
		v1.HostPathFileOrCreate:      func(info os.FileInfo) bool { return info.Mode().IsRegular() },
	} {
		t.Run(string(kind), func(t *testing.T) {
			f := newFixture(t)
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			f.exchanges(t, dir)
			name := "new"
			if kind == v1.HostPathDirectoryOrCreate {
				name = "a/b/new"
			}
			exchange, reached := f.set.deps.Mounter.(swapping).exchange, 0
			f.set.deps.Mounter = swapping{f.set.deps.Mounter.(swapping).Mounter, func(path string) {
				if reached++; name == "new" && reached == 2 || name != "new" && path == dir {
					exchange(path)
				}
			}}
			if err := f.set.Setup(t.Context(), podWith(hostPathVolume("v", dir+"/"+name, kind))); err != nil {
				t.Error(err)
			}
			if info, err := os.Lstat(dir + ".old/" + name); err != nil || !is(info) {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

func TestALocalVolumeIsWhatWasReachedAtItsPath(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f.bind("c", "pv", localPV(dir))
	f.exchanges(t, dir)
	exchange, reached := f.set.deps.Mounter.(swapping).exchange, 0
	f.set.deps.Mounter = swapping{f.set.deps.Mounter.(swapping).Mounter, func(path string) {
		if reached++; reached == 2 { // it was asked first whether it is a server's
			exchange(path)
		}
	}}
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); err != nil || reached != 2 {
		t.Errorf("reached %d times: %v", reached, err)
	}
}

// TestAPathThatComesToLieWithAServerIsNotLookedAt: as soon as it was asked, it does.
func TestAPathThatComesToLieWithAServerIsNotLookedAt(t *testing.T) {
	f := newFixture(t)
	dir, fake := t.TempDir(), f.set.deps.Mounter
	f.bind("c", "pv", localPV(dir))
	f.set.deps.Apart = &processes{do: func(context.Context) error { return errors.New("somebody is asked") }}
	f.set.deps.Mounter = swapping{fake, func(path string) {
		if served, _ := fake.Served(dir); len(served) == 0 {
			if err := fake.Remote(t.Context(), "s:/d", dir, "nfs", nil); err != nil {
				t.Error(err)
			}
		}
	}}
	err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c")))
	fails(t, err, `MountVolume.SetUp failed for volume "pv" : it is asked for at `+dir+`: invalid cross-device link`)
	err = f.set.Setup(t.Context(), podWith(claimVolume("v", "c")))
	fails(t, err, `MountVolume.SetUp failed for volume "pv" : somebody is asked`)
}

// TestADirectoryOfAHostPathIsMadeOnceHoweverItIsWritten: nothing is made in it, which its pod
// would find there.
func TestADirectoryOfAHostPathIsMadeOnceHoweverItIsWritten(t *testing.T) {
	dir, kind := t.TempDir(), v1.HostPathDirectoryOrCreate
	for _, path := range []string{dir + "/data/", dir + "/x/y//", dir + "/p/./q/", dir + "/r/."} {
		for range 2 {
			if err := checkHostPath(&v1.HostPathVolumeSource{Path: path, Type: &kind}, findByPath); err != nil {
				t.Fatal(err)
			}
		}
		if inside, err := os.ReadDir(path); err != nil || len(inside) != 0 {
			t.Errorf("in %q lies %v, %v", path, inside, err)
		}
	}
}

// TestAFileThatAnotherPodsVolumeMakesMeanwhileIsMade: pods may begin at once that want one file.
func TestAFileThatAnotherPodsVolumeMakesMeanwhileIsMade(t *testing.T) {
	kind := v1.HostPathFileOrCreate
	for want, other := range map[string]func(path string) error{
		"":            func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) },
		"file exists": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "x")
		missed := func(asked string) (*os.File, error) {
			found, err := findByPath(asked)
			if asked == path && errors.Is(err, os.ErrNotExist) {
				if err := other(path); err != nil {
					t.Error(err)
				}
			}
			return found, err
		}
		err := checkHostPath(&v1.HostPathVolumeSource{Path: path, Type: &kind}, missed)
		if want == "" {
			if text, readErr := os.ReadFile(path); err != nil || string(text) != "theirs" {
				t.Errorf("of the other's file: %v; it reads %q, %v", err, text, readErr)
			}
			continue
		}
		fails(t, err, "open "+path+": "+want)
	}
}

// Each look reads the table of mounts.
func TestADirectoryDeepBelowWhatIsThereIsMadeWithFewLooks(t *testing.T) {
	k, looks := mount.New(mount.Config{}), 0
	find := finder(func(path string) (*os.File, error) {
		looks++
		found, _, err := k.Reach(path)
		return found, err
	})
	for depth, most := range map[int]int{1: 1, 2: 4, 1500: 13} {
		top := t.TempDir()
		path := top + strings.Repeat("/a", depth)
		looks = 0
		if err := find.makeDirs(path); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("%d deep: %v", depth, err)
		}
		if looks > most {
			t.Errorf("%d deep: %d looks, want %d at most", depth, looks, most)
		}
	}
	kind := v1.HostPathDirectoryOrCreate
	top := t.TempDir()
	err := checkHostPath(&v1.HostPathVolumeSource{Path: top + strings.Repeat("/a", 1<<18), Type: &kind}, find)
	if entries, _ := os.ReadDir(top); err == nil || len(entries) > 0 {
		t.Errorf("a path that the kernel does not take: %.200v, %v", err, entries)
	}
}
