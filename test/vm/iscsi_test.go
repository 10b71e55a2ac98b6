package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	targetIQN    = "iqn.2001-04.example.polylet:vm"
	targetPortal = "127.0.0.1:3260"
)

// serveDisk has the kernel serve a disk as LUN 1 of an iSCSI target, to who knows the words.
func serveDisk(t *testing.T, user, password string) {
	t.Helper()
	for _, module := range []string{"target_core_mod", "target_core_file", "iscsi_target_mod", "iscsi_tcp", "sd_mod"} {
		if err := run("modprobe", module); err != nil {
			t.Fatal(err)
		}
	}
	const target = "/sys/kernel/config/target"
	core, portals := target+"/core/fileio_0/disk", target+"/iscsi/"+targetIQN+"/tpgt_1"
	lun := portals + "/lun/lun_1"
	err := diskOfFile(core, filepath.Join(t.TempDir(), "disk"), "15c51")
	for _, dir := range []string{portals, lun, portals + "/np/" + targetPortal} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	err = errors.Join(err, os.Symlink(core, lun+"/disk"))
	for _, said := range [][2]string{
		{"attrib/generate_node_acls", "1"}, {"attrib/cache_dynamic_acls", "1"}, {"attrib/demo_mode_write_protect", "0"},
		{"attrib/authentication", "1"}, {"auth/userid", user}, {"auth/password", password}, {"enable", "1"},
	} {
		err = errors.Join(err, tell(filepath.Join(portals, said[0]), said[1]))
	}
	t.Cleanup(func() {
		_ = tell(portals+"/enable", "0")
		for _, path := range []string{lun + "/disk", lun, portals + "/np/" + targetPortal, portals, filepath.Dir(portals), core} {
			_ = os.Remove(path)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// diskOfFile has the kernel's target have a disk of 64 MiB, with a serial number of hex
// digits, by a directory of configfs. The file is made.
func diskOfFile(core, file, serial string) error {
	const size = 64 << 20
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = os.Truncate(file, size)
	}
	return errors.Join(err, os.MkdirAll(core, 0o755), tell(core+"/control", fmt.Sprintf("fd_dev_name=%s,fd_dev_size=%d", file, size)),
		tell(core+"/wwn/vpd_unit_serial", serial), tell(core+"/enable", "1"))
}

// tell writes into a file of the kernel's.
func tell(file, text string) error { return os.WriteFile(file, []byte(text), 0o600) }

// startUdev starts what makes the links below /dev/disk, which is masked in this machine, until
// the test ends.
func startUdev(t *testing.T) {
	t.Helper()
	udev := []string{"systemd-udevd.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket"}
	if err := errors.Join(run("systemctl", append([]string{"unmask"}, udev...)...), run("systemctl", "start", udev[0])); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run("systemctl", append([]string{"stop"}, udev...)...)
		_ = run("systemctl", append([]string{"mask"}, udev...)...)
	})
}

// TestPodsyncsRightsAreEnoughForISCSI has podsync's own test of a target's disk run with
// what its unit lets it do, and with the kernel's own target.
func TestPodsyncsRightsAreEnoughForISCSI(t *testing.T) {
	serveDisk(t, "user", "pass-word-12")
	startUdev(t)
	if err := run("systemctl", "start", "iscsid.service"); err != nil {
		t.Fatal(err)
	}
	command := append([]string{"--wait", "--pipe", "--collect", "--quiet", "--setenv=POLYLET_TEST_ISCSI=" + targetPortal + " " + targetIQN + " 1 user pass-word-12"}, rights(t, "polylet-podsync.service")...)
	command = append(command, payload+"/bin/scsi.test", "-test.v", "-test.run=^(TestALive|TestADeviceThatSomebody)")
	out, err := exec.Command("systemd-run", command...).CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "--- PASS: TestALiveTargetsDisk") {
		t.Errorf("%v:\n%s", err, text)
	}
	t.Log(text)
}
