package vm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	otherPortal = "127.0.0.1:3261"
	// gathersAll has multipathd make a device of each disk that more than one path leads to.
	gathersAll = "defaults {\n find_multipaths yes\n user_friendly_names no\n}\nblacklist {\n devnode \"^(vd|loop|ram)\"\n}\n"
)

// TestADiskThatTwoPathsLeadToIsGivenToPodsAsItsMultipathDevice: a target with two portals, whose
// disk multipathd gathers. podsync is killed while a pod has it, and logs out by both at the end.
func TestADiskThatTwoPathsLeadToIsGivenToPodsAsItsMultipathDevice(t *testing.T) {
	serveTwice(t)
	startMultipath(t)
	p := testPod("twice", "", "", "", "")
	p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
		TargetPortal: targetPortal, Portals: []string{targetPortal, otherPortal}, IQN: targetIQN, Lun: 1, FSType: "ext4",
	}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: "/v"}}
	apply(t, p)
	defer remove(t, p.Name)
	ready(t, p.Name)
	before := known(t, p.Name)

	mounts := mountsOfISCSI(t)
	device := onMultipath(t, mounts)
	t.Logf("mounted is %s: %v", device, mounts)
	if n := sessions(t); len(n) != 2 {
		t.Errorf("the sessions are %v", n)
	}

	killed := killPodsync(t)
	eventually(t, "podsync is back", func() error {
		if now := property(t, "polylet-podsync.service", "MainPID"); now == killed || now == "0" {
			return fmt.Errorf("its process is %s", now)
		}
		_, err := get(healthz)
		return err
	})
	known(t, p.Name)
	goesOn(t, before, p.Name)
	if now := mountsOfISCSI(t); !maps.Equal(now, mounts) {
		t.Errorf("mounted are %v, and were %v", now, mounts)
	}
	// What is set up again is so by what stands.
	another := p
	another.Name = "beside"
	apply(t, another)
	defer remove(t, another.Name)
	ready(t, another.Name)
	if n := sessions(t); len(n) != 2 {
		t.Errorf("the sessions of two pods are %v", n)
	}

	remove(t, p.Name)
	if n := len(mountsOfISCSI(t)); n != 2 {
		t.Errorf("with the second pod there are %d mounts, want that for all and its own", n)
	}
	remove(t, another.Name)
	nothingOfISCSIIsLeft(t)
}

// serveTwice serves a disk by two portals to whoever asks.
func serveTwice(t *testing.T) {
	t.Helper()
	serveDisk(t, "user", "pass-word-12")
	portals := "/sys/kernel/config/target/iscsi/" + targetIQN + "/tpgt_1"
	// A target that serves lets nobody change who it asks for words.
	if err := errors.Join(tell(portals+"/enable", "0"), tell(portals+"/attrib/authentication", "0"), tell(portals+"/enable", "1"), os.Mkdir(portals+"/np/"+otherPortal, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(portals + "/np/" + otherPortal) })
}

// startMultipath starts multipathd, which is masked in this machine, and what it needs, until the
// test ends.
func startMultipath(t *testing.T) {
	t.Helper()
	if err := write("/etc/multipath.conf", gathersAll); err != nil {
		t.Fatal(err)
	}
	startUdev(t)
	units := []string{"multipathd.service", "multipathd.socket"}
	t.Cleanup(func() {
		_ = run("systemctl", append([]string{"stop"}, units...)...)
		_ = run("systemctl", append([]string{"mask"}, units...)...)
		_ = os.Remove("/etc/multipath.conf")
	})
	if err := runAll([][]string{
		{"modprobe", "-a", "dm_multipath", "dm_service_time"},
		append([]string{"systemctl", "unmask"}, units...),
		{"systemctl", "start", "iscsid.service", "multipathd.service"},
	}); err != nil {
		t.Fatal(err)
	}
}

// known waits until the node's own list has a pod's container, which a podsync that has just
// started may not have observed yet.
func known(t *testing.T, name string) (got *corev1.Pod) {
	t.Helper()
	eventually(t, "the container of "+name+" is known", func() (err error) {
		if got, err = pod(name); err == nil && len(got.Status.ContainerStatuses) == 0 {
			err = fmt.Errorf("the pod's status is %+v", got.Status)
		}
		return err
	})
	return got
}

// mountsOfISCSI are the mounts of disks for all pods, and of pods, by their paths.
func mountsOfISCSI(t *testing.T) map[string]string {
	t.Helper()
	all := mountsAt(t, "kubernetes.io/iscsi")
	maps.Copy(all, mountsAt(t, "kubernetes.io~iscsi"))
	return all
}

// onMultipath wants mounts to be of one multipath device with two paths, and says which.
func onMultipath(t *testing.T, mounts map[string]string) (device string) {
	t.Helper()
	if len(mounts) != 2 {
		t.Fatalf("mounted are %v", mounts)
	}
	for path := range mounts {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
		uuid, err := os.ReadFile(at + "/dm/uuid")
		paths, pathsErr := os.ReadDir(at + "/slaves")
		if err := errors.Join(err, pathsErr); err != nil || !strings.HasPrefix(string(uuid), "mpath-") || len(paths) != 2 {
			shown, _ := exec.Command("multipath", "-ll").CombinedOutput() // for who reads it
			t.Fatalf("%s is of %s: %q with the paths %v, %v\n%s", path, at, uuid, paths, err, shown)
		}
		device = strings.TrimSpace(string(uuid))
	}
	return device
}

// sessions are those with targets, as the kernel has them.
func sessions(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/class/iscsi_session/*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// nothingOfISCSIIsLeft wants no session and record, no disk and device of a target's, no mount, and
// nothing in podsync's directories.
func nothingOfISCSIIsLeft(t *testing.T) {
	t.Helper()
	eventually(t, "nothing of iSCSI is left", func() error {
		left := sessions(t)
		left = append(left, slices.Collect(maps.Keys(mountsOfISCSI(t)))...)
		for _, pattern := range []string{"/sys/block/dm-*", "/sys/block/sd*", "/dev/mapper/3*", kubeletRoot + "/plugins/kubernetes.io/iscsi/*/*", kubeletRoot + "/plugins/polylet~disks/*"} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				return err
			}
			left = append(left, found...)
		}
		if out, err := exec.Command("iscsiadm", "-m", "node").CombinedOutput(); err == nil {
			left = append(left, "the record "+string(out))
		}
		if len(left) > 0 {
			return fmt.Errorf("there is %q", left)
		}
		return nil
	})
}
