package volume

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
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
