package scsi

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// targetEnv names a real target: its portal, its IQN, a LUN, a user and a password for
// CHAP. What is on the disk is lost.
const targetEnv = "POLYLET_TEST_ISCSI"

// fabricEnv names a disk of a real fabric: the name of its target's port, and its LUN.
const fabricEnv = "POLYLET_TEST_FC"

// partly does one call if this process was begun for that.
func partly() (code int, is bool) {
	if len(os.Args) < 2 || os.Args[1] != apart.Flag {
		return 0, false
	}
	calls := Calls()
	maps.Copy(calls, mount.Calls())
	maps.Copy(calls, ownership.Calls())
	return apart.Main(os.Args[1:], calls, os.Stdout), true
}

// lonely is a cluster that lets everything be used.
type lonely struct{ user, password string }

func (lonely) Hold(context.Context, *v1.Pod, v1.UniqueVolumeName, bool, bool) error { return nil }
func (lonely) SettleSoon(v1.UniqueVolumeName)                                       {}

func (a lonely) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"node.session.auth.username": []byte(a.user), "node.session.auth.password": []byte(a.password)}}, nil
}

// newLive is a bench with the kernel, and with programs, themselves, and what begins anew with it.
func newLive(t *testing.T, cluster lonely) (b *bench, live func() *Volumes) {
	t.Helper()
	root := t.TempDir()
	live = func() *Volumes {
		return New(Config{RootDir: root}, Deps{Objects: cluster, InUse: cluster, Mounter: mount.New(mount.Config{Devices: filepath.Join(root, "polylet", "devices")}), Apart: apart.New(apart.Config{Most: 4, MostOfOne: 4})})
	}
	b = &bench{Volumes: live(), t: t, host: t.TempDir()}
	if err := os.Symlink(root, filepath.Join(b.host, "root")); err != nil {
		t.Fatal(err)
	}
	return b, live
}

// TestALiveTargetsDiskIsMountedGivenAsADeviceAndTakenAway with the kernel, iscsiadm and
// mount themselves: what was written is there the next time, and nothing is left.
func TestALiveTargetsDiskIsMountedGivenAsADeviceAndTakenAway(t *testing.T) {
	of := strings.Fields(os.Getenv(targetEnv))
	if len(of) != 5 {
		t.Skipf("%s names no target", targetEnv)
	}
	b, live := newLive(t, lonely{of[3], of[4]})
	source := v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{
		TargetPortal: of[0], IQN: of[1], Lun: 1, SessionCHAPAuth: true, SecretRef: &v1.SecretReference{Name: "s"}, FSType: "ext4",
	}}
	settle := func(what string, want bool) {
		t.Helper()
		names, err := b.Left()
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %q, %v", what, names, err)
		}
		if left, err := b.Settle(t.Context(), names[0]); left != want || err != nil {
			t.Errorf("%s: %v, %v", what, left, err)
		}
		if sessions, err := b.sessions(of[1]); (len(sessions) > 0) != want || err != nil {
			t.Errorf("%s: there are sessions %v, %v", what, sessions, err)
		}
	}
	group := int64(4242)
	for _, try := range []string{"first", "again"} {
		began := time.Now()
		one := b.claimed("uid-1", "pv", source, v1.PersistentVolumeFilesystem)
		one.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		two := b.claimed("uid-2", "pv", source, v1.PersistentVolumeFilesystem)
		two.ReadOnly = true
		b.setUp(one)
		t.Logf("%s: set up in %v", try, time.Since(began))
		b.setUp(two)
		file := filepath.Join(one.Dir, "file")
		if raw, err := os.ReadFile(filepath.Join(two.Dir, "file")); try == "again" && (string(raw) != "kept" || err != nil) {
			t.Errorf("what was written is lost: %q, %v", raw, err)
		}
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(two.Dir, "file"), nil, 0o600); err == nil {
			t.Error("who only reads has written")
		}
		if info, err := os.Stat(one.Dir); err != nil || info.Mode()&os.ModeSetgid == 0 {
			t.Errorf("the files are not given to the group: %v, %v", info.Mode(), err)
		}
		b.Volumes = live()
		b.takeDown(one)
		settle(try+", with another pod", true)
		b.takeDown(two)
		settle(try, false)
	}
	device := b.claimed("uid-3", "pv", source, v1.PersistentVolumeBlock)
	b.setUp(device)
	if info, err := os.Stat(device.Dir); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("it is no device: %v", err)
	}
	settle("a device", true)
	b.takeDown(device)
	settle("a device", false)
	if names, err := b.Left(); len(names) != 0 || err != nil {
		t.Errorf("left are %q, %v", names, err)
	}
}

// TestALiveFabricsDiskIsGivenAsADeviceAndTakenAway with the kernel itself; also after a
// restart, and looked for when it is not on the node.
func TestALiveFabricsDiskIsGivenAsADeviceAndTakenAway(t *testing.T) {
	of := strings.Fields(os.Getenv(fabricEnv))
	if len(of) != 2 {
		t.Skipf("%s names no disk", fabricEnv)
	}
	lun, err := strconv.ParseInt(of[1], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	number := int32(lun)
	b, live := newLive(t, lonely{})
	for _, mode := range []v1.PersistentVolumeMode{v1.PersistentVolumeBlock, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem} {
		r := b.claimed("uid-1", "pv", v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{TargetWWNs: of[:1], Lun: &number}}, mode)
		b.setUp(r)
		if info, err := os.Stat(r.Dir); err != nil || (info.Mode()&os.ModeDevice != 0) != (mode == v1.PersistentVolumeBlock) {
			t.Errorf("as %s it is %v, %v", mode, info, err)
		}
		b.Volumes = live()
		names, err := b.Left()
		if err != nil || len(names) != 1 {
			t.Fatalf("on the node are %q, %v", names, err)
		}
		if left, err := b.Settle(t.Context(), names[0]); !left || err != nil {
			t.Errorf("what a pod has is settled: %v, %v", left, err)
		}
		b.takeDown(r)
		if left, err := b.Settle(t.Context(), names[0]); left || err != nil {
			t.Errorf("after the pod: %v, %v", left, err)
		}
		if disks := b.disksOfFabric(&fabric{WWNs: of[:1], Lun: of[1]}); len(disks) != 0 {
			t.Errorf("left are %q", disks)
		}
	}
	if names, err := b.Left(); len(names) != 0 || err != nil {
		t.Errorf("left are %q, %v", names, err)
	}
}
