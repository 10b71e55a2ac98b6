package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What the fabric is: a wire of Ethernet between two interfaces of this machine, without a
// switch. At one end is the kernel's initiator, as a host of FCoE, at the other its target.
const (
	fcInitiator = "eth1"
	fcTarget    = "eth2"
	fcDisks     = 4 // the target's LUNs
)

// fcPort is the name of the port that an interface is, as the kernel makes it of its address.
func fcPort(t *testing.T, iface string) string {
	t.Helper()
	mac, err := os.ReadFile("/sys/class/net/" + iface + "/address")
	if err != nil {
		t.Fatal(err)
	}
	return "2000" + strings.ReplaceAll(strings.TrimSpace(string(mac)), ":", "")
}

// octets has each two digits of a port's name for themselves, as the kernel's target wants it.
func octets(port string) string {
	var all []string
	for two := range slices.Chunk([]byte(port), 2) {
		all = append(all, string(two))
	}
	return strings.Join(all, ":")
}

// fcSerial is the serial number of a LUN's disk, of which its WWID is made: fcWWID as udev
// calls it.
func fcSerial(lun int) string { return fmt.Sprintf("%025x", 0xd15c00+lun) }
func fcWWID(lun int) string   { return "36001405" + fcSerial(lun) }

// serveFabric has the kernel serve disks to this machine over a fabric, and returns the name of
// the target's port. It stays until the machine is off: a port that is taken away while one asks
// it is more than this is about.
func serveFabric(t *testing.T) string {
	t.Helper()
	for _, module := range []string{"fcoe", "target_core_mod", "target_core_file", "tcm_fc", "sd_mod"} {
		if err := run("modprobe", module); err != nil {
			t.Fatal(err)
		}
	}
	port := fcPort(t, fcTarget)
	const target = "/sys/kernel/config/target"
	group := target + "/fc/" + octets(port) + "/tpgt_1"
	mapped := group + "/acls/" + octets(fcPort(t, fcInitiator))
	err := errors.Join(os.MkdirAll(group, 0o755), os.MkdirAll(mapped, 0o755))
	for lun := range fcDisks {
		core := fmt.Sprintf("%s/core/fileio_%d/disk", target, lun)
		of, seen := fmt.Sprintf("%s/lun/lun_%d", group, lun), fmt.Sprintf("%s/lun_%d", mapped, lun)
		err = errors.Join(err, diskOfFile(core, fmt.Sprintf("/srv/fc-%d", lun), fcSerial(lun)),
			os.Mkdir(of, 0o755), os.Symlink(core, of+"/disk"), os.Mkdir(seen, 0o755), os.Symlink(of, seen+"/lun"))
	}
	// The target first: a port says what it is when another logs in.
	const bus = "/sys/bus/fcoe/"
	for n, iface := range []string{fcTarget, fcInitiator} {
		err = errors.Join(err, run("ip", "link", "set", iface, "up"), tell(bus+"ctlr_create", iface))
		ctlr := fmt.Sprintf("%sdevices/ctlr_%d/", bus, n)
		err = errors.Join(err, tell(ctlr+"mode", "vn2vn"), tell(ctlr+"enabled", "1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the target's port", func() error {
		found, _ := filepath.Glob("/sys/class/fc_remote_ports/*")
		var all []string
		for _, at := range found {
			name, nameErr := os.ReadFile(at + "/port_name")
			roles, rolesErr := os.ReadFile(at + "/roles")
			if err := errors.Join(nameErr, rolesErr); err != nil {
				return err
			}
			all = append(all, string(name)+string(roles))
			if strings.Contains(string(name), port) && strings.Contains(string(roles), "FCP Target") {
				return nil
			}
		}
		return fmt.Errorf("there are %q", all)
	})
	return port
}

// fcDisk is the name of the disk that a LUN is here; empty when it is not here.
func fcDisk(lun int) string {
	found, _ := filepath.Glob(fmt.Sprintf("/sys/class/fc_remote_ports/rport-*/device/target*/*:%d/block/*", lun))
	if len(found) == 0 {
		return ""
	}
	return filepath.Base(found[0])
}

// isHere wants that some LUNs are disks of this machine, or that they are not.
func isHere(t *testing.T, want bool, luns ...int) {
	t.Helper()
	eventually(t, fmt.Sprintf("LUNs %v are here: %v", luns, want), func() error {
		for _, lun := range luns {
			if disk := fcDisk(lun); (disk != "") != want {
				return fmt.Errorf("LUN %d is %q", lun, disk)
			}
		}
		return nil
	})
}

// byPort is a volume that is one LUN of a target's port, byWWID one with that name of its own.
func byPort(name, port string, lun int32) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{FC: &corev1.FCVolumeSource{TargetWWNs: []string{port}, Lun: &lun, FSType: "ext4"}}}
}

func byWWID(name string, lun int) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{FC: &corev1.FCVolumeSource{WWIDs: []string{fcWWID(lun)}, FSType: "ext4"}}}
}

// inPod wants what commands say in a pod's container.
func inPod(t *testing.T, pod string, wants map[string]string) {
	t.Helper()
	for command, want := range wants {
		if out, err := execute(t, pod, "", "sh", "-c", command); err != nil || out != want {
			t.Errorf("%s: %q, want %q (%v)", command, out, want, err)
		}
	}
}

// isTheSame wants a pod's container to be the one that it was, once a podsync that has just begun
// has looked at it.
func isTheSame(t *testing.T, before *corev1.Pod) {
	t.Helper()
	is, was := known(t, before.Name).Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container was %s, is %s after %d restarts", was.ContainerID, is.ContainerID, is.RestartCount)
	}
}

// nothingOfFCIsLeft wants no mount of a fabric's disk, and none of podsync's files about one.
func nothingOfFCIsLeft(t *testing.T) {
	t.Helper()
	eventually(t, "nothing of a fabric is left", func() error {
		table, err := os.ReadFile("/proc/self/mountinfo")
		for line := range strings.Lines(string(table)) {
			if strings.Contains(line, "kubernetes.io/fc") || strings.Contains(line, "kubernetes.io~fc") {
				err = errors.Join(err, errors.New(line))
			}
		}
		for _, pattern := range []string{"plugins/kubernetes.io/fc/*", "plugins/kubernetes.io/fc/volumeDevices/*", "plugins/polylet~disks/*", "pods/*"} {
			left, globErr := filepath.Glob("/var/lib/kubelet/" + pattern)
			left = slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == "volumeDevices" })
			if err = errors.Join(err, globErr); len(left) > 0 {
				err = errors.Join(err, fmt.Errorf("left: %v", left))
			}
		}
		return err
	})
}

// TestPodsyncsRightsAreEnoughForFC: podsync as its unit starts it finds disks of a real fabric,
// by the name of the target's port and by their own, makes filesystems on them, and takes them
// from the node with the last pod.
func TestPodsyncsRightsAreEnoughForFC(t *testing.T) {
	startUdev(t)
	port := serveFabric(t)
	t.Run("by its port and LUN", func(t *testing.T) { fcByPort(t, port) })
	t.Run("by its WWID", func(t *testing.T) { fcByWWID(t, port) })
	t.Run("a port or a LUN that there is not", func(t *testing.T) { fcNowhere(t, port) })
	t.Run("a disk that the machine uses itself", func(t *testing.T) { fcOfTheMachine(t, port) })
	t.Run("as a device", func(t *testing.T) {
		command := append([]string{"--wait", "--pipe", "--collect", "--quiet", "--setenv=POLYLET_TEST_FC=" + port + " 3"}, rights(t, "polylet-podsync.service")...)
		out, err := exec.Command("systemd-run", append(command, payload+"/bin/scsi.test", "-test.v", "-test.run=^TestALiveFabrics")...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestALiveFabricsDisk") {
			t.Errorf("%v:\n%s", err, out)
		}
		isHere(t, false, 3)
	})
	t.Run("a cable that is pulled", func(t *testing.T) { fcCable(t, port) })
	if got := property(t, "polylet-podsync.service", "NRestarts"); got != "2" {
		t.Errorf("podsync was restarted %s times, and killed twice", got)
	}
}

// fcByPort: two LUNs of one pod, which podsync is killed beside, and again what was written.
func fcByPort(t *testing.T, port string) {
	p := nfsPod("fc-port", idles, byPort("one", port, 1), byPort("two", port, 2))
	apply(t, p)
	defer remove(t, p.Name)
	before := ready(t, p.Name)
	inPod(t, before.Name, map[string]string{
		"echo 1 >/v/one/f && cat /v/one/f && stat -c '%u %g' /v/one/f": "1\n4001 4002\n",
		"echo 2 >/v/two/f && cat /v/two/f":                             "2\n",
		"grep -c ' /v/one ext4 rw' /proc/mounts":                       "1\n",
	})
	links, _ := filepath.Glob("/dev/disk/by-path/*")
	t.Logf("the links are %q", links)
	killPodsyncAndWait(t)
	isTheSame(t, before)
	inPod(t, before.Name, map[string]string{"echo 3 >>/v/two/f && cat /v/two/f": "2\n3\n"})
	remove(t, p.Name)
	isHere(t, false, 1, 2)
	isHere(t, true, 0, 3) // nobody's, and left where they are
	nothingOfFCIsLeft(t)

	apply(t, p)
	inPod(t, ready(t, p.Name).Name, map[string]string{"cat /v/one/f /v/two/f": "1\n2\n3\n"})
	remove(t, p.Name)
	isHere(t, false, 1, 2)
	nothingOfFCIsLeft(t)
}

// fcByWWID: a disk that has gone with the pod before is looked for; another pod has it by its
// port, and it goes with the last of them.
func fcByWWID(t *testing.T, port string) {
	named, other := nfsPod("fc-wwid", idles, byWWID("one", 1)), nfsPod("fc-both", idles, byPort("one", port, 1))
	for _, p := range []corev1.Pod{named, other} {
		apply(t, p)
		defer remove(t, p.Name)
		full := ready(t, p.Name).Name
		inPod(t, full, map[string]string{"cat /v/one/f && echo " + p.Name + " >/v/one/by && cat /v/one/by": "1\n" + p.Name + "\n"})
	}
	remove(t, named.Name)
	full := ready(t, other.Name).Name
	inPod(t, full, map[string]string{"cat /v/one/f /v/one/by": "1\nfc-both\n"})
	isHere(t, true, 1)
	remove(t, other.Name)
	isHere(t, false, 1)
	nothingOfFCIsLeft(t)
}

// fcNowhere: what is looked for and not found is an event of its pod, which goes all the same.
func fcNowhere(t *testing.T, port string) {
	const nowhere = "20005254000000ff"
	for name, v := range map[string]corev1.Volume{"fc-port-of-nobody": byPort("disk", nowhere, 1), "fc-lun-of-nobody": byPort("disk", port, 9)} {
		apply(t, nfsPod(name, idles, v))
		defer remove(t, name)
	}
	for name, what := range map[string]string{"fc-port-of-nobody": "LUN 1 of " + nowhere, "fc-lun-of-nobody": "LUN 9 of " + port} {
		says(t, name, "FailedMount", "MountVolume.WaitForAttach failed for volume", "no fc disk found", what, "see that the fabric zones it to this node")
		t.Log(explained(name))
		remove(t, name)
	}
	nothingOfFCIsLeft(t)
}

// fcCut pulls the wire out at the initiator's end, where the kernel then has what is written
// wait for so many seconds before it gives the disks up, and returns what puts it in again.
func fcCut(t *testing.T, seconds string) (again func()) {
	t.Helper()
	ports, err := filepath.Glob("/sys/class/fc_remote_ports/*")
	for _, at := range ports {
		err = errors.Join(err, tell(at+"/dev_loss_tmo", seconds))
	}
	if err = errors.Join(err, run("ip", "link", "set", fcInitiator, "down")); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := run("ip", "link", "set", fcInitiator, "up"); err != nil {
			t.Error(err)
		}
	}
}

// fcCable: the wire is out for a while under a pod that writes, and then its pod ends while it
// is. The other pods do not wait, nor does podsync's start.
func fcCable(t *testing.T, port string) {
	p := nfsPod("fc-cable", "while true; do date +%s >/v/one/w; sync /v/one/w; sleep 1; done", byPort("one", port, 1))
	apply(t, p)
	defer remove(t, p.Name)
	before := ready(t, p.Name)
	written := func() string {
		out, _ := execute(t, before.Name, "", "cat", "/v/one/w")
		return out
	}
	again := fcCut(t, "600")
	defer func() { again() }()
	passes(t, "fc-beside")
	answers(t, "while the fabric is cut off")
	again()
	was := written() // which may wait while it is cut off
	eventually(t, "it is written again", func() error {
		if now := written(); now == was || now == "" {
			return fmt.Errorf("it is still %q", now)
		}
		return nil
	})

	again = fcCut(t, "30")
	killPodsyncAndWait(t)
	passes(t, "fc-beside-again")
	isTheSame(t, before)
	answers(t, "after podsync was killed")
	remove(t, p.Name)
	nothingOfFCIsLeft(t)
	again()
	next := nfsPod("fc-next", idles, byPort("one", port, 1))
	apply(t, next)
	defer remove(t, next.Name)
	inPod(t, ready(t, next.Name).Name, map[string]string{"cat /v/one/f": "1\n"})
	remove(t, next.Name)
	isHere(t, false, 1)
	nothingOfFCIsLeft(t)
}

// fcOfTheMachine: a pod's own spec gets no disk that the machine has mounted, and that stays.
func fcOfTheMachine(t *testing.T, port string) {
	const at = "/srv/fc-mounted"
	device := "/dev/" + fcDisk(0)
	if err := errors.Join(os.Mkdir(at, 0o755), run("mkfs.ext4", "-q", device), run("mount", device, at)); err != nil {
		t.Fatal(err)
	}
	apply(t, nfsPod("fc-theirs", idles, byPort("disk", port, 0)))
	says(t, "fc-theirs", "FailedMount", "is a disk that this node has in use for something else ("+at+")")
	remove(t, "fc-theirs")
	nothingOfFCIsLeft(t)
	if err := errors.Join(tell(at+"/f", "theirs"), run("umount", at)); err != nil {
		t.Error(err)
	}
	isHere(t, true, 0)
}
