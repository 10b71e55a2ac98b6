package hostcalls

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const header = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/3   #P:2\n#\n"

func TestCallsAreCountedByTheirNames(t *testing.T) {
	got, err := count([]byte(header +
		"           mount-9541    [001] ..... 77796.046909: sys_mount(dev_name: 0x55f8, dir_name: 0x55f8, type: 0x55, flags: 0, data: 0)\n" +
		"          umount-9542    [000] ..... 77796.084039: sys_umount(name: 0x5609ef31e300, flags: 0)\n" +
		"         podsync-9543    [000] ..... 77796.084039: sys_umount(name: 0x5609ef31e300, flags: 8)\n"))
	if err != nil || got["mount"] != 1 || got["umount"] != 2 || got["move_mount"] != 0 || len(got) != len(kinds) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCallsThatTheKernelHasNotKeptAreNoCount(t *testing.T) {
	if _, err := count([]byte(strings.Replace(header, "3/3", "3/70", 1))); err == nil || !strings.Contains(err.Error(), "3 of 70 calls") {
		t.Error(err)
	}
}

// TestTheCallsOfAProcessAndOfWhatItStartsAreCounted, and nobody else's.
func TestTheCallsOfAProcessAndOfWhatItStartsAreCounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	dir, target := t.TempDir(), t.TempDir()
	shell := exec.CommandContext(t.Context(), "sh", "-c", `read x; mount -t tmpfs x "$0"; umount "$0"`, target)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := New(dir, []int{shell.Process.Pid})
	if err != nil {
		_ = in.Close()
		_ = shell.Wait()
		t.Skipf("the kernel has no such tracer: %v", err)
	}
	if err := exec.CommandContext(t.Context(), "sh", "-c", `mount -t tmpfs x "$0"; umount "$0"`, target).Run(); err != nil {
		t.Error(err)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	if err := shell.Wait(); err != nil {
		t.Error(err)
	}
	got, err := c.Calls()
	if mounts := got["mount"] + got["fsmount"]; err != nil || mounts != 1 || got["umount"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left is %v, %v", left, err)
	}
}
