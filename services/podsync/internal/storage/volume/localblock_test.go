package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// usesDevice is a pod with a claim that it uses as a device.
func usesDevice() *v1.Pod {
	pod := podWith(claimVolume("v", "c"))
	pod.Spec.Containers[0].VolumeMounts, pod.Spec.Containers[0].VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	return pod
}

func TestALocalVolumeIsGivenToAPodAsADeviceAndTakenBack(t *testing.T) {
	f := onDevice(t)
	block := v1.PersistentVolumeBlock
	f.bind("c", "pv", localPV(f.device)).Spec.VolumeMode = &block
	if err := f.set.Setup(t.Context(), usesDevice()); err != nil {
		t.Fatal(err)
	}
	link, shown := f.set.deviceLink("uid-1", pluginLocal, "pv"), f.set.localMap("uid-1", "pv")
	if path, is := f.set.Device("uid-1", "v"); path != link || !is {
		t.Errorf("it is at %q", path)
	}
	if to, err := os.Readlink(link); to != f.device || err != nil {
		t.Errorf("it leads to %q, %v", to, err)
	}
	if all := f.events.all(); len(all) != 2 || all[0] != `p: SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" globalMapPath "`+filepath.Dir(shown)+`"` ||
		all[1] != `p: SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" volumeMapPath "`+filepath.Dir(link)+`"` {
		t.Errorf("events are %q", all)
	}
	if list := f.set.Volumes("uid-1"); len(list) != 1 || !list[0].Driven || list[0].PVCName != "c" || list[0].Ephemeral {
		t.Errorf("shown are %+v", list)
	}
	if got, err := f.set.Usage(t.Context(), "uid-1", "v"); err != nil || got != (Usage{Driver: "block", Capacity: 16 << 20}) {
		t.Errorf("how large it is: %+v, %v", got, err)
	}
	// A kubelet holds the device open so that no other comes in its place.
	if out, err := exec.Command("losetup", "--find", "--show", shown).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.set = f.restarted()
	f.set.deps.Mounter = f.kernel
	if err := f.set.Setup(t.Context(), usesDevice()); err != nil { // finds it there
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("losetup", "--associated", shown).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("it is held open by %s, %v", out, err)
	}
	for _, path := range []string{filepath.Dir(shown), f.set.podDir("uid-1") + "/volumeDevices"} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left", path)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), f.root) {
		t.Errorf("something is mounted still, %v", err)
	}
}

func TestADirectoryIsNoDevice(t *testing.T) {
	f := newFixture(t)
	block := v1.PersistentVolumeBlock
	dir := t.TempDir()
	pv := f.bind("c", "pv", localPV(dir))
	pv.Spec.VolumeMode = &block
	fails(t, f.set.Setup(t.Context(), usesDevice()), `MapVolume.MapPodDevice failed for volume "pv" : `+dir+` is a directory, and the volume is one of volumeMode Block`)
	if err := claims.CheckKind(pv); err != nil {
		t.Error(err)
	}
}

func TestADeviceOfAnUnknownPluginIsLeftAsItIs(t *testing.T) {
	f := newFixture(t)
	link := filepath.Join(f.root, "pods/uid-1/volumeDevices/example.com~x/pv")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o750), os.Symlink("/dev/null", link)); err != nil {
		t.Fatal(err)
	}
	fails(t, f.set.Teardown(t.Context(), "uid-1"), `tear down the volumes of pod uid-1: volume "pv" is a device of plugin example.com/x, which this node has no driver of; end what was made for it and remove `+link+` by hand`)
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
}
