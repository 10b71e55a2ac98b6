package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// drives stands for the CSI drivers of the node.
type drives struct {
	f           *fixture
	attach, set error
	labelled    bool
	mu          sync.Mutex
	asked       []Request
}

func (d *drives) Attach(_ context.Context, r Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r)
	return d.attach
}

func (d *drives) Setup(_ context.Context, r Request) (Made, error) {
	if d.set != nil {
		return Made{}, d.set
	}
	if claims.IsDevice(r.PV) {
		return Made{Path: r.Dir}, errors.Join(os.MkdirAll(filepath.Dir(r.Dir), 0o750), os.Symlink("/dev/null", r.Dir))
	}
	path := filepath.Join(r.Dir, "mount")
	if err := os.MkdirAll(path, 0o750); err != nil {
		return Made{}, err
	}
	return Made{Path: path, Labelled: d.labelled}, d.f.mounts.Bind("csi", path)
}

func (d *drives) Teardown(_ context.Context, v Remains) error {
	path := filepath.Join(v.Dir, "mount")
	return errors.Join(d.f.mounts.Unmount(path), os.Remove(path), os.Remove(v.Dir))
}

func (d *drives) Unmap(_ context.Context, v Remains) error { return os.Remove(v.Dir) }

func csiPV() v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}
}

// withAttacher is a node with CSI drivers.
func withAttacher(t *testing.T) (*fixture, *drives) {
	t.Helper()
	f := newFixture(t)
	d := &drives{f: f}
	f.set.deps.CSI, f.set.drivers[pluginCSI] = d, d
	return f, d
}

func TestAVolumeOfAClaimIsItsDriversOnceItIsAttached(t *testing.T) {
	f, d := withAttacher(t)
	f.bind("c", "pv", csiPV())
	pod := podWith(claimVolume("v", "c"))
	d.attach = &podstate.VolumeStep{Step: "MountVolume.WaitForAttach", Err: errors.New("not yet")}
	fails(t, f.set.Setup(t.Context(), pod), `MountVolume.WaitForAttach failed for volume "pv" : not yet`)
	d.attach, d.set = nil, errors.New("broken")
	fails(t, f.set.Setup(t.Context(), pod), `MountVolume.SetUp failed for volume "pv" : broken`)
	if _, kept := f.set.keptBound("uid-1", "v"); kept {
		t.Error("it counts as used, and is not")
	}
	d.set = nil
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~csi/pv")
	if r := d.asked[2]; r.PV == nil || r.PV.Name != "pv" || r.ReadOnly || r.Dir != want {
		t.Errorf("asked for %+v", r)
	}
	if path, _ := f.set.HostPath("uid-1", "v"); path != filepath.Join(want, "mount") {
		t.Errorf("it lies at %q", path)
	}
	if all := f.set.Volumes("uid-1"); len(all) != 1 || !all[0].Driven || all[0].PVCName != "c" || f.set.KeepsLabels("uid-1", "v") {
		t.Errorf("it is measured by its files, or left as the host's: %+v", all)
	}

	again := f.restarted()
	again.deps.CSI, again.drivers[pluginCSI] = d, d
	f.set = again
	f.claims.setAway(errors.New("away"))
	var failed podstate.VolumeErrors
	if err := f.set.Setup(t.Context(), pod); !errors.As(err, &failed) || len(failed.Standing()) != 1 {
		t.Fatalf("%v, standing: %v", err, failed.Standing())
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if left := f.mounts.Mounts(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestAVolumeThatIsMountedWithItsPodsLabelKeepsIt: no file of it is given one, also after a
// restart.
func TestAVolumeThatIsMountedWithItsPodsLabelKeepsIt(t *testing.T) {
	for name, source := range map[string]v1.PersistentVolumeSource{
		"a CSI driver's": csiPV(), "a disk": {FC: &v1.FCVolumeSource{WWIDs: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := withAttacher(t)
			f.bind("c", "pv", source)
			d.labelled, f.withDisks().labelled = true, true
			pod := podWith(claimVolume("v", "c"))
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if !f.set.KeepsLabels("uid-1", "v") {
				t.Error("its files are given labels")
			}
			f.set = f.restarted()
			f.set.deps.CSI, f.set.drivers[pluginCSI] = d, d
			f.withDisks()
			f.claims.setAway(errors.New("away"))
			var failed podstate.VolumeErrors
			if err := f.set.Setup(t.Context(), pod); !errors.As(err, &failed) || len(failed.Standing()) != 1 {
				t.Fatal(err)
			}
			if !f.set.KeepsLabels("uid-1", "v") {
				t.Error("its files are given labels after a restart")
			}
		})
	}
}

// What a kubelet has published stands, though nothing of ours says which claim it is of.
func TestWhatAnotherAgentHasPublishedStandsWhenItCannotBePublishedAgain(t *testing.T) {
	f, d := withAttacher(t)
	f.bind("c", "pv", csiPV())
	path := filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~csi/pv/mount")
	if err := errors.Join(os.MkdirAll(path, 0o750), f.mounts.Bind("csi", path)); err != nil {
		t.Fatal(err)
	}
	d.set = errors.New("away")
	var failed podstate.VolumeErrors
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); !errors.As(err, &failed) || len(failed.Standing()) != 1 {
		t.Fatalf("%v, standing: %v", err, failed.Standing())
	}
}

// halfway are drives whose volumes are mounted when their set-up fails, as where files
// cannot be given to the pod's group.
type halfway struct{ *drives }

func (d halfway) Setup(ctx context.Context, r Request) (Made, error) {
	if _, err := d.drives.Setup(ctx, r); err != nil {
		return Made{}, err
	}
	return Made{}, errors.New("applyFSGroup failed")
}

func TestWhatIsMountedAndNotAllSetUpDoesNotStand(t *testing.T) {
	f, d := withAttacher(t)
	f.bind("c", "pv", csiPV())
	f.set.deps.CSI = halfway{d}
	pod := podWith(claimVolume("v", "c"))
	stands := func() bool {
		t.Helper()
		var failed podstate.VolumeErrors
		if err := f.set.Setup(t.Context(), pod); !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return len(failed.Standing()) > 0
	}
	for try := range 2 {
		if stands() {
			t.Errorf("the pod uses it after try %d", try)
		}
	}
	f.set = f.restarted()
	f.set.deps.CSI, f.set.drivers[pluginCSI] = halfway{d}, d
	if stands() {
		t.Error("the pod uses it after a restart")
	}
	f.set.deps.CSI = d
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	f.set.deps.CSI, f.set.drivers[pluginCSI] = halfway{d}, d
	if !stands() {
		t.Error("what was set up does not stand")
	}
}

// After a restart nobody knows the spec of a pod that is gone from the apiserver.
func TestAVolumeForOnePodIsNotThatOfAVolumeOfAPodsOwnSpecWhichIsLeftAndCalledLikeIt(t *testing.T) {
	f, _ := withAttacher(t)
	pv := f.bind("c", "pv", csiPV())
	dir := filepath.Join(f.root, "pods/uid-a/volumes", pluginCSI, "pv")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for kept, want := range map[string]bool{
		`{"volumeLifecycleMode":"Ephemeral"}`: false, `{"volumeLifecycleMode":"Persistent"}`: true, `{}`: true, `{"vol`: true,
	} {
		if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(kept), 0o600); err != nil {
			t.Fatal(err)
		}
		if used, err := f.set.usedElsewhere(pv, "uid-b"); used != want || err != nil {
			t.Errorf("beside %s: used: %v, %v", kept, used, err)
		}
	}
}

func TestThatADeviceForOnePodIsAnothersIsSaidOfItsMapping(t *testing.T) {
	f, _ := withAttacher(t)
	pv, block := f.bind("c", "pv", csiPV()), v1.PersistentVolumeBlock
	pv.Spec.AccessModes, pv.Spec.VolumeMode = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, &block
	first, second := podWith(claimVolume("v", "c")), podWith(claimVolume("v", "c"))
	for _, pod := range []*v1.Pod{first, second} {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
	}
	second.UID = "uid-2"
	if err := f.set.Setup(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	err := f.set.Setup(t.Context(), second)
	failed := podstate.VolumeErrors{}
	const want = `MapVolume.SetUpDevice failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`
	if !errors.Is(err, claims.ErrInUse) || !errors.As(err, &failed) || err.Error() != want || failed.EventReason() != "FailedMapVolume" {
		t.Errorf("%s: %v", failed.EventReason(), err)
	}
}

func TestThatADeviceIsNotAttachedYetIsSaidOfItsMapping(t *testing.T) {
	f, d := withAttacher(t)
	pv, block := f.bind("c", "pv", csiPV()), v1.PersistentVolumeBlock
	pv.Spec.VolumeMode = &block
	pod := podWith(claimVolume("v", "c"))
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
	full := fmt.Errorf("not yet: %w", podstate.ErrNoRoomToAttach)
	d.attach = &podstate.VolumeStep{Step: podstate.WaitForAttach, Err: full}
	err := f.set.Setup(t.Context(), pod)
	failed := podstate.VolumeErrors{}
	if !errors.As(err, &failed) || failed.EventReason() != "FailedMapVolume" || err.Error() != `MapVolume.WaitForAttach failed for volume "pv" : `+full.Error() {
		t.Errorf("%s: %v", failed.EventReason(), err)
	}
	if text, is := failed.Unattachable(); !is || !strings.Contains(text, "unattached volumes=[v]") {
		t.Errorf("%v, %s", is, text)
	}
}

func TestAVolumeForOnePodOfADriverIsSetUpForOne(t *testing.T) {
	f, _ := withAttacher(t)
	f.bind("c", "pv", csiPV()).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	first, second := podWith(claimVolume("v", "c")), podWith(claimVolume("v", "c"))
	second.UID = "uid-2"
	if err := f.set.Setup(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), second); !errors.Is(err, claims.ErrInUse) {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), second); err != nil {
		t.Fatal(err)
	}
}

// refuses is a driver that keeps a volume from a pod beside another for a reason of its own.
type refuses struct{ Driver }

var errRefused = errors.New("conflicting SELinux labels")

func (refuses) Conflict(context.Context, Request) error { return errRefused }

func (r refuses) Attach(ctx context.Context, of Request) error {
	return r.Driver.(Attacher).Attach(ctx, of)
}

func TestWhyAVolumeForOnePodIsKeptFromAnotherItsDriverSaysFirst(t *testing.T) {
	for name, source := range map[string]v1.PersistentVolumeSource{
		"a CSI driver's": csiPV(), "a disk": {FC: &v1.FCVolumeSource{WWIDs: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := withAttacher(t)
			f.set.deps.CSI, f.set.deps.Disks = refuses{d}, refuses{f.withDisks()}
			f.bind("c", "pv", source).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			first, second := podWith(claimVolume("v", "c")), podWith(claimVolume("v", "c"))
			second.UID = "uid-2"
			if err := f.set.Setup(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			fails(t, f.set.Setup(t.Context(), second), `MountVolume.SetUp failed for volume "pv" : `+errRefused.Error())
			if _, kept := f.set.keptBound("uid-2", "v"); kept {
				t.Error("the second pod counts as one that has it")
			}
		})
	}
}

func TestWithoutCSIDriversAVolumeOfOneIsRefused(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", csiPV())
	fails(t, f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))), `MountVolume.SetUp failed for volume "pv" : this node has no CSI drivers`)
}

func TestADeviceOfAClaimIsGivenAsADeviceAndTakenBack(t *testing.T) {
	f, d := withAttacher(t)
	block := v1.PersistentVolumeBlock
	f.bind("c", "pv", csiPV()).Spec.VolumeMode = &block
	pod := podWith(claimVolume("v", "c"))
	fails(t, f.set.Setup(t.Context(), pod), `MountVolume.SetUp failed for volume "pv" : volume v has volumeMode Block, but is specified in volumeMounts`)
	pod.Spec.Containers[0].VolumeMounts, pod.Spec.Containers[0].VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(f.root, "pods/uid-1/volumeDevices/kubernetes.io~csi/pv")
	if path, is := f.set.Device("uid-1", "v"); path != want || !is {
		t.Errorf("it is at %q", path)
	}
	if path, is := f.set.HostPath("uid-1", "v"); is {
		t.Errorf("it could be mounted from %q", path)
	}
	if used, err := f.set.usedElsewhere(f.claims.volumes["pv"], "uid-2"); !used || err != nil {
		t.Errorf("used: %v, %v", used, err)
	}
	f.set = f.restarted()
	f.set.deps.CSI, f.set.drivers[pluginCSI] = d, d
	f.claims.setAway(errors.New("away"))
	var failed podstate.VolumeErrors
	if err := f.set.Setup(t.Context(), pod); !errors.As(err, &failed) || len(failed.Standing()) != 1 {
		t.Fatalf("%v, standing: %v", err, failed.Standing())
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(f.root, "pods/uid-1/volumeDevices")); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}
