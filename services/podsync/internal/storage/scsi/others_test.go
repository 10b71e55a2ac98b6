package scsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

func byWWID(ids ...string) v1.VolumeSource {
	return v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: ids}}
}

// TestAPodsOwnSpecGetsNoDiskThatTheNodeHasInUse, by whatever way, nor does it take it away.
func TestAPodsOwnSpecGetsNoDiskThatTheNodeHasInUse(t *testing.T) {
	for name, c := range map[string]struct {
		id    string
		held  string // a device that somebody holds
		shown map[string][]string
		ours  string // where a claim's is shown
	}{
		"a device of a claim of ours":      {id: "root", ours: "fc/volumeDevices/root/uid-0"},
		"mounted":                          {id: "root", shown: map[string][]string{"sda": {"/"}}},
		"given to another as a device":     {id: "root", shown: map[string][]string{"sda": {"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/uid"}}},
		"part of another device":           {id: "root", held: "sda"},
		"a part of one that is held":       {id: "root-part2", held: "sda"},
		"mounted by a name as one of ours": {id: "root", shown: map[string][]string{"sda": {"/mnt/plugins/kubernetes.io/fc/x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			makeDisk(b.host, "sda", "by-id/scsi-root")
			makeDisk(b.host, "sda2", "by-id/scsi-root-part2")
			b.make("sys/devices/sda/sda2/partition", "2\n")
			b.make("sys/class/block/")
			if err := os.Symlink("../../devices/sda/sda2", filepath.Join(b.host, "sys/class/block/sda2")); err != nil {
				t.Fatal(err)
			}
			b.deps.Apart = &answers{inner: Calls(), of: c.held}
			b.deps.Shown = func(name string) ([]string, error) {
				if c.ours != "" {
					return []string{filepath.Join(b.host, "root/plugins/kubernetes.io", c.ours)}, nil
				}
				return c.shown[name], nil
			}
			r := b.inline("uid-1", "v", byWWID(c.id))
			_, err := b.Setup(t.Context(), r)
			if podstate.VolumeCauseOf(err) != podstate.VolumeSpec || !strings.HasPrefix(err.Error(), "MountVolume.WaitForAttach: ") || !strings.Contains(err.Error(), "is a disk that this node has in use for something else") || len(b.mounts.Mounts()) != 0 {
				t.Errorf("%v; mounted are %q", err, b.mounts.Mounts())
			}
			b.deps.Apart, b.deps.Shown = nil, func(string) ([]string, error) { return nil, nil } // it is let go of
			names, err := b.Left()
			if err != nil || len(names) != 1 {
				t.Fatalf("%q, %v", names, err)
			}
			if left, err := b.Settle(t.Context(), names[0]); left || err != nil {
				t.Errorf("%v, %v", left, err)
			}
			b.bare()
			if b.read("sys/block/sda/device/delete") != "" {
				t.Error("the node's disk is taken away")
			}
		})
	}
}

// TestADiskThatWasRefusedIsTakenAwayWithItsLastPod: who got none of it does not hold it.
func TestADiskThatWasRefusedIsTakenAwayWithItsLastPod(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	has, refused := b.claimed("uid-1", "pv", pvSource(0), v1.PersistentVolumeBlock), b.inline("uid-2", "v", source(0))
	b.setUp(has)
	b.deps.Shown = func(string) ([]string, error) {
		return []string{filepath.Join(b.host, "root/plugins/kubernetes.io/iscsi/volumeDevices/x")}, nil
	}
	if _, err := b.Setup(t.Context(), refused); err == nil {
		t.Fatal("it is given to both")
	}
	b.deps.Shown = func(string) ([]string, error) { return nil, nil }
	b.takeDown(has)
	b.settleAll()
	if b.read("sys/block/sd2/device/delete") != "1" {
		t.Error("the disk is left on the node")
	}
}

// TestADiskThatWasRefusedIsNotTakenAwayThoughItWasNotFoundTheNextTime: it is still something
// else's, which may use it again.
func TestADiskThatWasRefusedIsNotTakenAwayThoughItWasNotFoundTheNextTime(t *testing.T) {
	b := newBench(t)
	makeDisk(b.host, "sda", "by-id/scsi-3600508b4")
	b.make("sys/block/sda/device/wwid", "naa.600508b4\n")
	b.deps.Shown = func(string) ([]string, error) { return []string{"/mnt"}, nil }
	r := b.inline("uid-1", "v", byWWID("3600508b4"))
	if _, err := b.Setup(t.Context(), r); err == nil {
		t.Fatal("it is given to a pod")
	}
	b.deps.Shown = func(string) ([]string, error) { return nil, nil }
	if err := os.Remove(filepath.Join(b.host, "dev/disk/by-id/scsi-3600508b4")); err != nil {
		t.Fatal(err)
	}
	b.make("sys/class/scsi_host/host0/scan")
	ctx, cancel := context.WithCancel(t.Context())
	b.deps.Apart = &after{answers: &answers{inner: Calls()}, call: callScan, do: func([]string) { cancel() }}
	if _, err := b.Setup(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.deps.Apart = nil
	b.settlesTheOne()
	if b.read("sys/block/sda/device/delete") != "" {
		t.Error("the node's disk is taken away")
	}
	// Nobody has it any more, and a pod gets it, with which it goes.
	makeDisk(b.host, "sda", "by-id/scsi-3600508b4")
	b.deps.Shown = func(string) ([]string, error) { return []string{"/mnt"}, nil }
	if _, err := b.Setup(t.Context(), r); err == nil {
		t.Fatal("it is given to a pod")
	}
	b.deps.Shown = func(string) ([]string, error) { return nil, nil }
	b.setUp(r)
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if b.read("sys/block/sda/device/delete") != "1" {
		t.Error("a pod's disk is left")
	}
}

// TestADiskThatPodsHaveIsGivenToOthersByAnotherWay, as it would be by the same.
func TestADiskThatPodsHaveIsGivenToOthersByAnotherWay(t *testing.T) {
	b := newBench(t)
	makeDisk(b.host, "sda", "by-id/scsi-a")
	b.deps.Apart = &answers{inner: Calls(), of: "sda"}
	b.deps.Shown = func(string) ([]string, error) {
		return []string{filepath.Join(b.host, "root/pods/uid-0/volumes/kubernetes.io~fc/v"), filepath.Join(b.host, "root/plugins/kubernetes.io/fc/b")}, nil
	}
	b.make("root/plugins/kubernetes.io/fc/b/")
	b.setUp(b.inline("uid-1", "v", byWWID("a")))
}

// TestADiskThatAnotherShowsAsADeviceIsNotTakenAway, who may hold it open as anybody may.
func TestADiskThatAnotherShowsAsADeviceIsNotTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd", "1": "se"}`)
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	b.takeDown(r)
	var others string
	b.deps.Shown = func(name string) ([]string, error) {
		if name == others {
			return []string{"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/x"}, nil
		}
		return nil, nil
	}
	others = "sd2"
	name := b.settled[0]
	if left, err := b.Settle(t.Context(), name); !left || err == nil || !strings.Contains(err.Error(), "is in use still: it is shown at /var/lib/kubelet/plugins") {
		t.Errorf("%v, %v", left, err)
	}
	others = "se2"
	if left, err := b.Settle(t.Context(), name); left || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	b.bare()
	if b.read("sys/block/sd2/device/delete") != "1" || strings.Contains(b.read("asked"), "--logout") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

func TestNamesAndPortalsWithoutEndAreRefusedBeforeTheClusterIsTold(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("a", 200)
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("192.0.2.1:%d", i)
	}
	for name, of := range map[string]v1.VolumeSource{
		"wwids": byWWID(long, long), "wwns": fabricSource(1, long, long), "portals": source(0, many...),
		"iqn": {ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn." + long + long, ISCSIInterface: "default"}},
	} {
		if err := b.Attach(t.Context(), b.inline("uid-1", "v", of)); err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), "; correct the volume") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.held) != 0 {
		t.Errorf("the cluster knows of %q", b.held)
	}
}

// TestTheClusterIsToldWhichDisksAPodsOwnSpecHas: of those there may be few.
func TestTheClusterIsToldWhichDisksAPodsOwnSpecHas(t *testing.T) {
	b := newBench(t)
	for want, r := range map[bool]volume.Request{
		true: b.inline("uid-1", "v", byWWID("a")), false: b.claimed("uid-1", "pv", v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"a"}}}, v1.PersistentVolumeFilesystem),
	} {
		if err := b.Attach(t.Context(), r); err != nil || b.own != want {
			t.Errorf("%v, want %v: %v", b.own, want, err)
		}
	}
}

func TestAnISCSISessionIsNotLookedThroughForADiskOfAFabric(t *testing.T) {
	b := newBench(t)
	b.make("sys/class/scsi_host/host0/scan")
	b.make("sys/class/scsi_host/host1/scan")
	b.make("sys/class/iscsi_host/host1/")
	makeDisk(b.host, "sda", "by-id/scsi-a")
	b.setUp(b.inline("uid-1", "v", byWWID("a")))
	if got := b.read("sys/class/scsi_host/host0/scan"); got != "- - -" {
		t.Errorf("the fabric's host was told %q", got)
	}
	if got := b.read("sys/class/scsi_host/host1/scan"); got != "" {
		t.Errorf("the session was told %q", got)
	}
}

// mountedWith notes with which options a disk is mounted.
type mountedWith struct {
	*mount.Fake
	options []string
}

func (m *mountedWith) Device(ctx context.Context, device, target, filesystem string, options []string) error {
	m.options = options
	return m.Fake.Device(ctx, device, target, filesystem, options)
}

// TestADiskOfAPodsOwnSpecDoesNotMakeTheMachinePanic: an ext4 may say that of itself.
func TestADiskOfAPodsOwnSpecDoesNotMakeTheMachinePanic(t *testing.T) {
	b := newBench(t)
	makeDisk(b.host, "sda", "by-id/scsi-a")
	m := &mountedWith{Fake: b.mounts}
	b.deps.Mounter = m
	b.setUp(b.inline("uid-1", "v", byWWID("a")))
	if got := strings.Join(m.options, ","); got != "errors=remount-ro" {
		t.Errorf("mounted with %s", got)
	}
}

func TestARecordOfAnotherPlaceIsNotBelieved(t *testing.T) {
	b := newBench(t)
	makeDisk(b.host, "sda", "by-id/scsi-a")
	b.setUp(b.inline("uid-1", "v", byWWID("a")))
	at := filepath.Join(b.host, "root/plugins/kubernetes.io/fc/a")
	if err := os.WriteFile(b.recordOf(at), fmt.Appendf(nil, `{"path":%q,"fc":{"WWIDs":["b"]}}`, at), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := b.Left(); err != nil || len(names) != 1 || names[0] != "kubernetes.io/fc/[a]" {
		t.Errorf("%q, %v", names, err)
	}
}

// TestTheKernelSaysWhereADeviceIsShown needs root, for a device that is bound.
func TestTheKernelSaysWhereADeviceIsShown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	at := filepath.Join(t.TempDir(), "shown")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := mount.New(mount.Config{})
	if got, err := shown("/dev", "null"); err != nil || slices.Contains(got, at) {
		t.Fatalf("%q, %v", got, err)
	}
	if err := k.Bind("/dev/null", at); err != nil {
		t.Skip("it may not mount: ", err)
	}
	got, err := shown("/dev", "null")
	if endErr := k.Unmount(at); endErr != nil {
		t.Error(endErr)
	}
	if err != nil || !slices.Contains(got, at) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := shown("/dev", "polylet-none"); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
}
