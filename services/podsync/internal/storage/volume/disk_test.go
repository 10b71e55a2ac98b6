package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// disks is a Driver of disks, which are mounted at once.
type disks struct {
	mounts   *mount.Fake
	mu       sync.Mutex
	asked    []string
	refuse   error // Attach
	broken   error // Setup
	labelled bool
}

func (d *disks) ask(what, dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, below, _ := strings.Cut(dir, "/pods/")
	d.asked = append(d.asked, what+" "+below)
}

func (d *disks) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(d.asked)
	d.asked = nil
	slices.Sort(list)
	return list
}

func (d *disks) Attach(_ context.Context, r Request) error {
	d.ask("attach", r.Dir)
	return d.refuse
}

func (d *disks) Setup(_ context.Context, r Request) (Made, error) {
	d.ask("set up", r.Dir)
	if d.broken != nil {
		return Made{}, d.broken
	}
	err := os.MkdirAll(filepath.Dir(r.Dir), 0o750)
	if strings.Contains(r.Dir, devicesDir) {
		return Made{Path: r.Dir}, errors.Join(err, os.Symlink("/dev/null", r.Dir))
	}
	return Made{Path: r.Dir, Labelled: d.labelled}, errors.Join(err, os.Mkdir(r.Dir, 0o750), d.mounts.Bind("disk", r.Dir))
}

func (d *disks) Teardown(_ context.Context, v Remains) error {
	d.ask("take down", v.Dir)
	return errors.Join(d.mounts.Unmount(v.Dir), rmdir(v.Dir))
}

func (d *disks) Unmap(_ context.Context, v Remains) error {
	d.ask("unmap", v.Dir)
	return rmdir(v.Dir)
}

func (d *disks) Global(Request) string { return "/global" }

func iscsiVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2001-04.example:d", Lun: 1}}}
}

func (f *fixture) withDisks() *disks {
	d := &disks{mounts: f.mounts}
	f.set.deps.Disks, f.set.drivers[pluginISCSI], f.set.drivers[pluginFC] = d, d, d
	return d
}

func TestDisksOfTargetsAndFabricsAreMadeByTheirDriverOnceTheyMayBeUsed(t *testing.T) {
	f := newFixture(t)
	d := f.withDisks()
	f.bind("c", "pv", v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2001-04.example:e"}})
	f.bind("d", "dev", v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"3600"}}})
	block := v1.PersistentVolumeBlock
	f.claims.volumes["dev"].Spec.VolumeMode = &block
	pod := podWith(iscsiVolume("v"), claimVolume("c", "c"), claimVolume("d", "d"))
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == "d" })
	c.VolumeDevices = []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/x"}}

	d.refuse = errors.New("volume is not attached according to node status")
	if err := f.set.Setup(t.Context(), pod); err == nil || strings.Count(err.Error(), "is not attached") != 3 {
		t.Error(err)
	}
	at := []string{"attach uid-1/volumeDevices/kubernetes.io~fc/dev", "attach uid-1/volumes/kubernetes.io~iscsi/pv", "attach uid-1/volumes/kubernetes.io~iscsi/v"}
	if got := d.all(); !slices.Equal(got, at) {
		t.Errorf("asked %q", got)
	}
	d.refuse = nil
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := append(at, "set up uid-1/volumeDevices/kubernetes.io~fc/dev", "set up uid-1/volumes/kubernetes.io~iscsi/pv", "set up uid-1/volumes/kubernetes.io~iscsi/v")
	if got := d.all(); !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
	if path, set := f.set.Device("uid-1", "d"); !set || path != filepath.Join(f.root, "pods/uid-1/volumeDevices/kubernetes.io~fc/dev") {
		t.Errorf("the device is %q", path)
	}
	var shown []string
	for _, info := range f.set.Volumes("uid-1") {
		shown = append(shown, info.Name+" "+info.PVCName)
	}
	if !slices.Equal(shown, []string{"v ", "c c", "d d"}) {
		t.Errorf("measured are %q", shown)
	}
	if got := f.events.all(); !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, `globalMapPath "/global"`) }) {
		t.Errorf("told is %q", got)
	}

	f.set = f.restarted()
	d = f.withDisks()
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	want = []string{"take down uid-1/volumes/kubernetes.io~iscsi/pv", "take down uid-1/volumes/kubernetes.io~iscsi/v", "unmap uid-1/volumeDevices/kubernetes.io~fc/dev"}
	if got := d.all(); !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
}

func TestADiskThatStandsStandsThoughItMayNotBeUsedNow(t *testing.T) {
	f := newFixture(t)
	f.withDisks()
	pod := podWith(iscsiVolume("v"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	d := f.withDisks()
	d.refuse = errors.New("no")
	if err := f.set.Setup(t.Context(), pod); err == nil {
		t.Error("it is set up")
	}
	if path, set := f.set.HostPath("uid-1", "v"); !set || path != f.set.volumeDir("uid-1", pluginISCSI, "v") {
		t.Errorf("it lies at %q, %v", path, set)
	}
}

// TestAVolumeWhoseDeviceHasAnotherFilesystemSaysSo, not its pods alone: who made it sees that.
func TestAVolumeWhoseDeviceHasAnotherFilesystemSaysSo(t *testing.T) {
	f := newFixture(t)
	d := f.withDisks()
	f.bind("c", "pv", v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"a"}}})
	for _, c := range []struct {
		err  error
		want []string
	}{
		{errors.New("the disk is gone"), nil},
		{&mount.OtherFilesystem{Err: errors.New("wrong fs type")}, []string{`volume pv: FailedMountOnFilesystemMismatch: MountVolume failed for volume "pv" wrong fs type`}},
	} {
		d.broken = c.err
		if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); !errors.Is(err, c.err) {
			t.Error(err)
		}
		if got := f.events.all(); !slices.Equal(got, c.want) {
			t.Errorf("events %q, want %q", got, c.want)
		}
	}
}
