package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

func hostPathVolume(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// served has a directory of the host be a server's.
func (f *fixture) served(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := f.mounts.Remote(t.Context(), "s:/d", dir, "nfs", nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAPathOfTheHostThatLiesWithAServerIsLookedAtByAnotherProcess(t *testing.T) {
	f := newFixture(t)
	dir := f.served(t)
	others := &processes{do: func(context.Context) error { return nil }}
	f.set.deps.Apart = others
	f.bind("c", "pv", hostPathPV(dir+"/claimed"))
	kind := v1.HostPathDirectory
	f.claims.volumes["pv"].Spec.HostPath.Type = &kind
	pod := podWith(
		hostPathVolume("v", dir+"/a", v1.HostPathFile), hostPathVolume("own", t.TempDir(), v1.HostPathDirectory), hostPathVolume("any", dir+"/b", v1.HostPathUnset),
		claimVolume("c", "c"),
	)
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	asked := others.all()
	slices.Sort(asked)
	if want := []string{"host-path " + dir + "/a File", "host-path " + dir + "/claimed Directory"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if path, set := f.set.HostPath("uid-1", "v"); !set || path != dir+"/a" {
		t.Errorf("it lies at %q", path)
	}
}

// TestAPathOfTheHostWhoseServerDoesNotAnswerHoldsUpItsPodOnly: for a minute, and not the
// pod's end.
func TestAPathOfTheHostWhoseServerDoesNotAnswerHoldsUpItsPodOnly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		if err := f.mounts.Remote(t.Context(), "s:/d", dir, "nfs", nil); err != nil {
			t.Fatal(err)
		}
		f.set.deps.Apart = &processes{do: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		pod := podWith(hostPathVolume("v", dir, v1.HostPathDirectory))
		fails(t, f.set.Setup(t.Context(), pod),
			`MountVolume.SetUp failed for volume "v" : hostPath type check failed: the path lies on a filesystem whose server does not answer`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(t, f.set.Setup(ctx, pod), `MountVolume.SetUp failed for volume "v" : it is still being set up: context deadline exceeded`)
		began := time.Now()
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || time.Since(began) > 0 {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}

func TestAProcessLooksAPathOfTheHostUp(t *testing.T) {
	dir := t.TempDir()
	call := Calls()[callHostPath]
	if _, err := call([]string{filepath.Join(dir, "new"), "DirectoryOrCreate"}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || !info.IsDir() {
		t.Error(err)
	}
	_, err := call([]string{dir, "File"})
	fails(t, err, "hostPath type check failed: "+dir+" is not a file")
	if _, err := call(nil); err == nil {
		t.Error("nothing is looked up")
	}
}

// linked makes links in a directory, by what they read as.
func linked(t *testing.T, dir string, links map[string]string) {
	t.Helper()
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFileIsMadeWhereTheHostsLinksLead, though nothing is there yet, as the kernel goes by them.
func TestAFileIsMadeWhereTheHostsLinksLead(t *testing.T) {
	reach := func(path string) (*os.File, error) {
		found, _, err := mount.New(mount.Config{}).Reach(path)
		return found, err
	}
	for name, find := range map[string]finder{"by path": findByPath, "step by step": reach} {
		t.Run(name, func(t *testing.T) {
			dir, kind := t.TempDir(), v1.HostPathFileOrCreate
			if err := errors.Join(os.MkdirAll(dir+"/a/b", 0o755), os.Mkdir(dir+"/c", 0o755)); err != nil {
				t.Fatal(err)
			}
			linked(t, dir, map[string]string{
				"beside": "one", "whole": dir + "/a/two", "chain": "chain2", "chain2": "./a//b/three", "b": "a/b", "up": "b/../four",
				"nowhere": "x/five", "loop": "loop", "dir": "a/",
				"c/elsewhere": "../a/six",
			})
			check := func(path string) error {
				return checkHostPath(&v1.HostPathVolumeSource{Path: dir + "/" + path, Type: &kind}, find)
			}
			for path, at := range map[string]string{
				"beside": "one", "whole": "a/two", "chain": "a/b/three", "up": "a/four", "c/elsewhere": "a/six", "b/seven": "a/b/seven",
			} {
				for range 2 {
					if err := check(path); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
				if info, err := os.Lstat(filepath.Join(dir, at)); err != nil || info.Mode() != 0o644 || info.Size() != 0 {
					t.Errorf("%s: %v, %v", path, info, err)
				}
			}
			for path, want := range map[string]error{"nowhere": unix.ENOENT, "loop": unix.ELOOP} {
				if err := check(path); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", path, err, want)
				}
			}
			fails(t, check("dir"), "hostPath type check failed: "+dir+"/dir is not a file")
			made, err := filepath.Glob(dir + "/*")
			if err != nil || len(made) != 12 { // nine links, two directories and one file
				t.Errorf("there is %q, %v", made, err)
			}
		})
	}
}

// TestAFileThatALinkPlacesWithAServerIsMadeByAnotherProcess: it is seen only where the link leads.
func TestAFileThatALinkPlacesWithAServerIsMadeByAnotherProcess(t *testing.T) {
	f := newFixture(t)
	served, own := f.served(t), t.TempDir()
	linked(t, own, map[string]string{"file": served + "/new"})
	others := &processes{do: func(context.Context) error { return nil }}
	f.set.deps.Apart = others
	if err := f.set.Setup(t.Context(), podWith(hostPathVolume("v", own+"/file", v1.HostPathFileOrCreate))); err != nil {
		t.Fatal(err)
	}
	if want := []string{"host-path " + own + "/file FileOrCreate"}; !slices.Equal(others.all(), want) {
		t.Errorf("asked %q, want %q", others.all(), want)
	}
	if _, err := os.Lstat(served + "/new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is made by podsync itself: %v", err)
	}
}

// TestAStrangersLinkInADirectoryOfAllMakesNothing, as a kernel that protects links goes by them
// neither (sysctl fs.protected_symlinks).
func TestAStrangersLinkInADirectoryOfAllMakesNothing(t *testing.T) {
	dir, kind := t.TempDir(), v1.HostPathFileOrCreate
	linked(t, dir, map[string]string{"strangers": "one", "ours": "two", "owners": "three"})
	err := errors.Join(os.Chmod(dir, os.ModeSticky|0o777), os.Lchown(dir, 1001, 0), os.Lchown(dir+"/strangers", 1000, 0), os.Lchown(dir+"/owners", 1001, 0))
	if err != nil {
		t.Skipf("files cannot be given away: %v", err)
	}
	for name, want := range map[string]error{"strangers": unix.EACCES, "ours": nil, "owners": nil} {
		if err := checkHostPath(&v1.HostPathVolumeSource{Path: dir + "/" + name, Type: &kind}, findByPath); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := os.Lstat(dir + "/one"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is made: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := checkHostPath(&v1.HostPathVolumeSource{Path: dir + "/strangers", Type: &kind}, findByPath); err != nil {
		t.Errorf("whoever can remove its links makes them: %v", err)
	}
}
