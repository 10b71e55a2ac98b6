package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

func nfsVolume(name string, source v1.NFSVolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{NFS: &source}}
}

func nfsPV(server, path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: path}}
}

// is wants a mount of a server, with its options.
func (f *fixture) is(t *testing.T, volume, dir, source string, options ...string) {
	t.Helper()
	path, set := f.set.HostPath("uid-1", volume)
	if want := filepath.Join(f.root, "pods", "uid-1", "volumes", "kubernetes.io~nfs", dir); !set || path != want {
		t.Errorf("volume %s lies at %q, want %q", volume, path, want)
	}
	if got := f.mounts.Source(path); got != "nfs "+source {
		t.Errorf("volume %s is %q, want %q", volume, got, source)
	}
	if got := f.mounts.Options(path); !slices.Equal(got, options) {
		t.Errorf("volume %s has the options %q, want %q", volume, got, options)
	}
}

func TestADirectoryOfAnNFSServerIsMountedWithItsOptionsAndUnmounted(t *testing.T) {
	f := newFixture(t)
	pv := f.bind("c", "pv", nfsPV("s.example", "/claimed"))
	pv.Spec.MountOptions = []string{"nfsvers=4.1", "hard"}
	f.bind("r", "reads", nfsPV("192.0.2.1", "/read"))
	reads := claimVolume("r", "r")
	reads.PersistentVolumeClaim.ReadOnly = true
	pod := podWith(
		nfsVolume("v", v1.NFSVolumeSource{Server: "s.example", Path: "/d"}), nfsVolume("six", v1.NFSVolumeSource{Server: "2001:db8::1", Path: "/", ReadOnly: true}),
		claimVolume("c", "c"), reads,
	)
	for range 2 {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	f.is(t, "v", "v", "s.example:/d")
	f.is(t, "six", "six", "[2001:db8::1]:/", "ro")
	f.is(t, "c", "pv", "s.example:/claimed", "hard", "nfsvers=4.1")
	f.is(t, "r", "reads", "192.0.2.1:/read", "ro")
	if n := len(f.mounts.Mounts()); n != 4 {
		t.Errorf("%d mounts", n)
	}
	if err := f.restarted().Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if left := f.mounts.Mounts(); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
	if _, err := os.Lstat(filepath.Join(f.root, "pods", "uid-1", "volumes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

func TestAnNFSServerThatRefusesLeavesNothingAndIsTold(t *testing.T) {
	f := newFixture(t)
	refuses := true
	f.mounts.Fail = func(call, _ string) error {
		if call == "remote" && refuses {
			return errors.New("mount failed: exit status 32")
		}
		return nil
	}
	f.bind("c", "pv", nfsPV("s", "/d"))
	pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}), claimVolume("c", "c"))
	err := f.set.Setup(t.Context(), pod)
	fails(t, err, `MountVolume.SetUp failed for volume "v" : mount failed: exit status 32; MountVolume.SetUp failed for volume "pv" : mount failed: exit status 32`)
	for _, dir := range []string{"v", "pv"} {
		if _, err := os.Lstat(f.set.volumeDir("uid-1", pluginNFS, dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	refuses = false
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.is(t, "v", "v", "s:/d")
	f.is(t, "c", "pv", "s:/d")
}

// silent is a Mounter whose servers do not answer.
type silent struct {
	*mount.Fake
	asked *atomic.Int32 // of how many something is asked
}

func (s silent) Remote(ctx context.Context, _, _, _ string, _ []string) error {
	s.asked.Add(1)
	defer s.asked.Add(-1)
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestAnNFSServerThatDoesNotAnswerHoldsUpItsVolumesOnly: and each of them is waited for by
// one program, however often the pod is tried.
func TestAnNFSServerThatDoesNotAnswerHoldsUpItsVolumesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.deps.Mounter = silent{f.mounts, new(atomic.Int32)}
		f.bind("c", "pv", nfsPV("s", "/d"))
		pod := podWith(claimVolume("c", "c"), nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}), emptyDirVolume("e"))
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			if err := f.set.Setup(ctx, pod); err == nil || strings.Count(err.Error(), "it is still being set up") != 2 {
				t.Errorf("%v", err)
			}
			cancel()
		}
		if _, is := f.set.HostPath("uid-1", "e"); !is {
			t.Error("the other volume is not there")
		}
		other := named(podWith(emptyDirVolume("e")), "other")
		if err := f.set.Setup(t.Context(), other); err != nil {
			t.Error(err)
		}
		for _, uid := range []types.UID{"uid-1", "uid-other"} {
			if err := f.set.Teardown(t.Context(), uid); err != nil {
				t.Error(err)
			}
		}
	})
}

// slow is a Mounter whose servers take a second.
type slow struct {
	*mount.Fake
	asked *atomic.Int32 // how often
}

func (s slow) Remote(ctx context.Context, source, target, filesystem string, options []string) error {
	s.asked.Add(1)
	time.Sleep(time.Second)
	return s.Fake.Remote(ctx, source, target, filesystem, options)
}

// TestTwoVolumesOfOneNFSClaimAreMountedOnce: they lie in one place.
func TestTwoVolumesOfOneNFSClaimAreMountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		servers := slow{f.mounts, new(atomic.Int32)}
		f.set.deps.Mounter = servers
		f.bind("c", "pv", nfsPV("s", "/d"))
		if err := f.set.Setup(t.Context(), podWith(claimVolume("a", "c"), claimVolume("b", "c"))); err != nil {
			t.Fatal(err)
		}
		f.is(t, "a", "pv", "s:/d")
		f.is(t, "b", "pv", "s:/d")
		if n := servers.asked.Load(); n != 1 {
			t.Errorf("mounted %d times", n)
		}
	})
}

// TestAPodAsksOnlySoManyServersThatDoNotAnswerAtOnce: each takes a thread, of which podsync
// has 10,000, and two programs; a pod may name 512.
func TestAPodAsksOnlySoManyServersThatDoNotAnswerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		servers := silent{f.mounts, new(atomic.Int32)}
		f.set.deps.Mounter, f.set.deps.Pods = servers, nil
		var volumes []v1.Volume
		for i := range 3 * atOnce {
			volumes = append(volumes, nfsVolume(fmt.Sprint("v", i), v1.NFSVolumeSource{Server: fmt.Sprint("s", i%3), Path: "/d"}))
		}
		pod := podWith(volumes...)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := f.set.Setup(ctx, pod); err == nil {
			t.Error("it is set up")
		}
		synctest.Wait()
		if n := servers.asked.Load(); n != atOnce {
			t.Errorf("%d are asked", n)
		}
		if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
		if n := servers.asked.Load(); n != 0 {
			t.Errorf("%d are asked after the pod's end", n)
		}
	})
}

// hung is a Mounter of which one server does not answer.
type hung struct{ *mount.Fake }

func (h hung) Remote(ctx context.Context, source, target, filesystem string, options []string) error {
	if strings.HasPrefix(source, "hung:") {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return h.Fake.Remote(ctx, source, target, filesystem, options)
}

// TestTheVolumesOfAServerThatDoesNotAnswerHoldUpNoOtherServers, however many a pod has.
func TestTheVolumesOfAServerThatDoesNotAnswerHoldUpNoOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.deps.Mounter, f.set.deps.Pods = hung{f.mounts}, nil
		var volumes []v1.Volume
		for i := range 2 * atOnce {
			volumes = append(volumes, nfsVolume(fmt.Sprint("v", i), v1.NFSVolumeSource{Server: "hung", Path: "/d"}))
		}
		pod := podWith(append(volumes, nfsVolume("w", v1.NFSVolumeSource{Server: "other", Path: "/d"}))...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.set.Setup(ctx, pod); err == nil {
			t.Error("it is set up")
		}
		if _, up := f.set.HostPath(pod.UID, "w"); !up {
			t.Error("the other server's volume is not set up")
		}
		if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
	})
}

// TestAVolumeOfAKindWithoutADriverIsRefusedByItsName: also in a claim, before anything of
// it is made.
func TestAVolumeOfAKindWithoutADriverIsRefusedByItsName(t *testing.T) {
	for kind, source := range map[string]v1.PersistentVolumeSource{
		"rbd":    {RBD: &v1.RBDPersistentVolumeSource{}},
		"cephfs": {CephFS: &v1.CephFSPersistentVolumeSource{}},
	} {
		f := newFixture(t)
		f.bind("c", "pv", source)
		err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c")))
		if err == nil || !strings.Contains(err.Error(), "PersistentVolume pv is of the kind "+kind+", which this node does not support") {
			t.Errorf("%v", err)
		}
		if left := f.mounts.Mounts(); len(left) != 0 {
			t.Errorf("%s: mounted %q", kind, left)
		}
	}
}
