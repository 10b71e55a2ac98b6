package csi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// knows waits until what is on the disk was looked at.
func (b *bench) knows(t *testing.T) {
	t.Helper()
	select {
	case <-b.inUse.known:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody is told which volumes are in use")
	}
}

// damage writes nothing into a file, as a power cut leaves it of a kubelet's.
func damage(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, "vol_data.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedStagingIsTheVolumesThatTheNodeNamesAndKeepsNoOtherFromBeingUsed(t *testing.T) {
	for name, status := range map[string]v1.NodeStatus{
		"in use":         {VolumesInUse: []v1.UniqueVolumeName{"kubernetes.io/nfs/x", "kubernetes.io/csi/d", "kubernetes.io/csi/csi.example.com^h/1"}},
		"attached":       {VolumesAttached: []v1.AttachedVolume{{Name: "kubernetes.io/csi/csi.example.com^h/1"}}},
		"unknown to all": {},
	} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, nil)
			if err := b.setUp(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.mounts.Unmount(filepath.Join(b.pvDir("uid-1"), "mount")), os.RemoveAll(b.pvDir("uid-1"))); err != nil {
				t.Fatal(err)
			}
			damage(t, b.staging())
			b.node.Store(&v1.Node{Status: status})
			b.Volumes = b.restarted(t)
			b.knows(t)
			if _, told := b.inUse.told.Get("kubernetes.io/csi/csi.example.com^h/1"); told != (name != "unknown to all") {
				t.Errorf("in use: %v", told)
			}
			b.register(t)
			if name == "unknown to all" { // whoever uses it says what it is
				if err := b.setUp(t, "uid-2"); err != nil {
					t.Fatal(err)
				}
				if data, err := readVolumeData(b.staging()); err != nil || data.VolumeHandle != handleOf {
					t.Errorf("beside it lies %+v, %v", data, err)
				}
				b.end(t, "uid-2")
			}
			b.shows(true, false) // what was told to be in use comes into the Node
			b.nothing(t)
			if !slices.Contains(b.driver.Calls(), "NodeUnstageVolume") {
				t.Error("the driver was not asked to unstage it")
			}
		})
	}
}

func TestADamagedStagingWaitsForTheNode(t *testing.T) {
	b := newStaging(t, nil)
	damage(t, b.staging())
	b.Volumes = b.restarted(t)
	time.Sleep(50 * time.Millisecond)
	select {
	case <-b.inUse.known:
		t.Error("a volume may be detached that may be staged")
	default:
	}
	b.node.Store(&v1.Node{})
	b.knows(t)
}

func TestADamagedDeviceOfNoPodKeepsNoOtherVolumeStaged(t *testing.T) {
	b := newStaging(t, nil)
	damage(t, b.devices("pv-2/data"))
	b.Volumes = b.restarted(t)
	b.knows(t)
	b.register(t)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.end(t, "uid-1")
	b.nothing(t)
}

func TestADamagedDeviceOfAPodKeepsAllVolumesStagedUntilThePodIsGone(t *testing.T) {
	b := newStaging(t, nil)
	if err := errors.Join(b.mapDeviceOf(t, "uid-1"), b.mapDeviceOf(t, "uid-2")); err != nil {
		t.Fatal(err)
	}
	damage(t, b.devices("pv/data"))
	b.settleSoon(volumeID{driverOf, handleOf})
	b.inUse.forget("uid-1")
	b.inUse.forget("uid-2")
	time.Sleep(50 * time.Millisecond)
	if slices.Contains(b.driver.Calls(), "NodeUnstageVolume") {
		t.Error("unstaged under a pod")
	}
	if err := b.mapDeviceOf(t, "uid-1"); err != nil { // it stands
		t.Fatal(err)
	}
	b.Volumes = b.restarted(t)
	b.register(t)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.unmap(t, "uid-2")
	b.nothing(t)
}

func TestADamagedVolumeOfAPodKeepsInUseWhatTheNodeNamesAndNoPodFromOthers(t *testing.T) {
	b := newStaging(t, nil)
	damage(t, b.pvDir("uid-2"))
	b.Volumes = b.restarted(t)
	time.Sleep(50 * time.Millisecond)
	select {
	case <-b.inUse.known:
		t.Error("a volume may be detached that a pod may have")
	default:
	}
	b.node.Store(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"kubernetes.io/csi/csi.example.com^h/1", "kubernetes.io/csi/other.example.com^x"}}})
	b.Volumes = b.restarted(t)
	b.knows(t)
	if told := b.inUse.told.Snapshot(); len(told) != 2 {
		t.Errorf("in use are %v", told)
	}
	b.register(t)
	time.Sleep(50 * time.Millisecond)
	if told := b.inUse.told.Snapshot(); len(told) != 2 {
		t.Errorf("after a while in use are %v", told)
	}
	b.end(t, "uid-2")
	b.nothing(t)
}

// Of what no driver and no agent has made there.
func TestWhatIsNoFileBesideAVolumeKeepsNoOtherFromBeingUsed(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link out":  func(path string) error { return os.Symlink("/proc/self/maps", path) },
		"a dead link": func(path string) error { return os.Symlink("nowhere", path) },
		"a loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
	} {
		for _, place := range []string{"pods/other/volumes/kubernetes.io~csi/pv-2", "plugins/kubernetes.io/csi/other.example.com/abc", "plugins/kubernetes.io/csi/volumeDevices/pv-2/data"} {
			t.Run(name+" in "+filepath.Base(filepath.Dir(place)), func(t *testing.T) {
				b := newStaging(t, nil)
				dir := filepath.Join(b.root, place)
				if err := errors.Join(os.MkdirAll(dir, 0o750), put(filepath.Join(dir, "vol_data.json"))); err != nil {
					t.Fatal(err)
				}
				b.node.Store(&v1.Node{})
				b.Volumes = b.restarted(t)
				b.knows(t)
				b.register(t)
				if err := b.setUp(t, "uid-1"); err != nil {
					t.Error(err)
				}
				b.end(t, "uid-1")
			})
		}
	}
}

func TestOnlyWhatTheMachineLacksForTheMomentHidesWhatLiesBesideAVolume(t *testing.T) {
	for err, want := range map[error]bool{
		errDamaged: true, unix.EIO: true, unix.EUCLEAN: true, unix.EACCES: true,
		unix.EMFILE: false, unix.ENFILE: false, unix.ENOMEM: false, unix.EAGAIN: false, unix.EINTR: false,
	} {
		if got := unreadable(fmt.Errorf("read it: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
