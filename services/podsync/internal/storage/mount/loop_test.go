package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoopDevicesThatHoldAFileOpenAreEndedAndNoOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("devices need root")
	}
	dir := t.TempDir()
	loop := func(name string) (file, device string) {
		file = filepath.Join(dir, name)
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("losetup", "--find", "--show", file).Output()
		if err != nil {
			t.Skipf("no loop devices here: %v", err)
		}
		device = strings.TrimSpace(string(out))
		t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
		return file, device
	}
	held := func(file string) bool {
		out, err := exec.Command("losetup", "--associated", file).Output()
		return err == nil && len(out) > 0
	}
	file, _ := loop("a")
	other, _ := loop("ab")
	for range 2 {
		if err := New(Config{}).Release(file); err != nil {
			t.Fatal(err)
		}
	}
	if held(file) || !held(other) {
		t.Errorf("held open are: the file %v, the other %v", held(file), held(other))
	}
}
