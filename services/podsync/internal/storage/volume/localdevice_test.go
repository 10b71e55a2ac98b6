package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// deviceFixture is a fixture on the kernel with a block device that holds nothing.
type deviceFixture struct {
	*fixture
	kernel mount.Mounter
	device string
}

// onDevice takes the device away after all mounts.
func onDevice(t *testing.T) *deviceFixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("devices need root")
	}
	d := &deviceFixture{device: loopDevice(t)}
	d.fixture = onKernel(t)
	d.kernel = d.set.deps.Mounter
	return d
}

func loopDevice(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 16<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices here: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return device
}

func TestALocalDeviceIsFormattedOnceAndMountedForAllPodsUntilTheLastIsGone(t *testing.T) {
	f := onDevice(t)
	f.bind("c", "pv", localPV(f.device)).Spec.MountOptions = []string{"noatime"}
	first, second := withGroup(named(podWith(claimVolume("v", "c")), "a"), 4711), named(podWith(claimVolume("v", "c")), "b")
	for _, pod := range []*v1.Pod{first, second} {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	at, _ := f.set.HostPath(first.UID, "v")
	is(t, at, 4711, fs.ModeSetgid|0o775)
	write(t, filepath.Join(at, "data"), 0o600)
	if err := f.set.Teardown(t.Context(), first.UID); err != nil {
		t.Fatal(err)
	}
	other, _ := f.set.HostPath(second.UID, "v")
	if _, err := os.Stat(filepath.Join(other, "data")); err != nil {
		t.Errorf("the second pod after the first: %v", err)
	}
	f.set = f.restarted()
	f.set.deps.Mounter = f.kernel
	if err := f.set.Teardown(t.Context(), second.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.set.globalDir("pv")); !os.IsNotExist(err) || len(mountsBelow(t, f.root)) > 0 {
		t.Errorf("after the last pod: %v, mounts %v", err, mountsBelow(t, f.root))
	}
	// The next pod finds what was written, and one that only reads it cannot write.
	v := claimVolume("v", "c")
	v.PersistentVolumeClaim.ReadOnly = true
	if err := f.set.Setup(t.Context(), podWith(v)); err != nil {
		t.Fatal(err)
	}
	at, _ = f.set.HostPath("uid-1", "v")
	if _, err := os.Stat(filepath.Join(at, "data")); err != nil {
		t.Errorf("the third pod: %v", err)
	}
	if err := os.WriteFile(filepath.Join(at, "data"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write: %v", err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
}

func TestADeviceThatHoldsNothingIsNotFormattedForAPodThatOnlyReads(t *testing.T) {
	f := onDevice(t)
	f.bind("c", "pv", localPV(f.device))
	v := claimVolume("v", "c")
	v.PersistentVolumeClaim.ReadOnly = true
	if err := f.set.Setup(t.Context(), podWith(v)); err == nil || !strings.Contains(err.Error(), "cannot mount unformatted disk") {
		t.Errorf("%v", err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.set.globalDir("pv")); !os.IsNotExist(err) {
		t.Errorf("the directory of its mount: %v", err)
	}
}

func TestAFilesystemsNameIsNoPathOfAProgram(t *testing.T) {
	f := onDevice(t)
	f.bind("c", "pv", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: f.device, FSType: ptr.To("x/../../tmp/evil")}})
	fails(t, f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))),
		`MountVolume.SetUp failed for volume "pv" : "x/../../tmp/evil" is no filesystem's name`)
}

// TestADeviceThatWasMountedForAPodThatWasNotIsReleased: podsync was killed between the
// mount of the device and that of the pod's directory.
func TestADeviceThatWasMountedForAPodThatWasNotIsReleased(t *testing.T) {
	f := newFixture(t)
	if err := errors.Join(os.MkdirAll(f.set.globalDir("pv"), 0o750), os.MkdirAll(f.set.volumeDir("uid-1", pluginLocal, "pv"), 0o750)); err != nil {
		t.Fatal(err)
	}
	if err := f.mounts.Device(t.Context(), "/dev/x", f.set.globalDir("pv"), "ext4", nil); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if left := f.mounts.Mounts(); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// deadDisk is a Mounter whose disk does not answer.
type deadDisk struct{ *mount.Fake }

func (deadDisk) Device(ctx context.Context, _, _, _ string, _ []string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestAPodsEndDoesNotWaitForADiskThatDoesNotAnswer: what is left of its mount finds no
// directory any more.
func TestAPodsEndDoesNotWaitForADiskThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.deps.Mounter, f.set.deps.Pods = deadDisk{f.mounts}, nil
		pv := f.bind("c", "pv", localPV("/dev/x"))
		f.set.state("uid-1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := f.set.work(ctx, "uid-1", "v pv", func(ctx context.Context, _ *chown) error {
			if err := os.MkdirAll(f.set.volumeDir("uid-1", pluginLocal, pv.Name), 0o750); err != nil {
				return err
			}
			_, err := f.set.localDevice(ctx, pv, nil)
			return err
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		began := time.Now()
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := os.Lstat(f.set.globalDir(pv.Name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its place is there: %v", err)
		}
	})
}
