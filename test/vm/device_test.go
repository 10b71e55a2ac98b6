package vm

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// rights are the settings of a unit that say what its processes may do.
func rights(t *testing.T, unit string) []string {
	t.Helper()
	raw, err := os.ReadFile("/usr/lib/systemd/system/" + unit)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		for _, part := range []string{"Capabilit", "NoNewPrivileges", "KeyringMode", "Device", "Private", "Protect", "Restrict", "LockPersonality", "MemoryDeny", "SystemCall"} {
			if strings.HasPrefix(line, part) && !strings.HasPrefix(line, "Restart") {
				out = append(out, "--property="+line)
			}
		}
	}
	return out
}

// TestPodsyncsRightsAreEnoughForDevices has podsync's own tests of local devices run with
// what its unit lets it do: a node without an apiserver has no PersistentVolumes. They
// make the device, too, for which they get what podsync need not have.
func TestPodsyncsRightsAreEnoughForDevices(t *testing.T) {
	if err := run("modprobe", "loop"); err != nil {
		t.Fatal(err)
	}
	command := append([]string{"--wait", "--pipe", "--collect", "--quiet", "--property=DeviceAllow=/dev/loop-control rw"}, rights(t, "polylet-podsync.service")...)
	command = append(command, payload+"/bin/volume.test", "-test.v", "-test.run=^(TestALocal|TestADevice|TestTheFilesystemOfALocalDevice)")
	out, err := exec.Command("systemd-run", command...).CombinedOutput()
	text := string(out)
	if err != nil || strings.Contains(text, "--- SKIP") {
		t.Errorf("%v:\n%s", err, text)
	}
	for _, test := range []string{"TestALocalDeviceIsFormattedOnceAndMountedForAllPodsUntilTheLastIsGone", "TestTheFilesystemOfALocalDeviceGrowsWhileItIsMounted"} {
		if !strings.Contains(text, "--- PASS: "+test) {
			t.Errorf("%s did not pass", test)
		}
	}
}
