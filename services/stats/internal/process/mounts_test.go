package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestARootIsOfDirectoriesLaidOverEachOtherByItsLastMount(t *testing.T) {
	const disk = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	for name, c := range map[string]struct {
		mounts string
		want   bool
	}{
		"a disk":        {disk, false},
		"an overlay":    {"30 20 0:50 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a\n31 30 0:51 / /proc rw - proc proc rw\n", true},
		"one over it":   {disk + "30 20 0:50 / / rw - overlay overlay rw\n", true},
		"one elsewhere": {disk + "30 20 0:50 / /srv rw - overlay overlay rw\n", false},
		"by a server":   {"30 20 0:50 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw\n", true},
		"btrfs":         {"30 20 0:50 /snap / rw - btrfs /dev/sdb rw\n", false},
		"no mount":      {"30 20\n", false},
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(c.mounts), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := overlaid(file); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if overlaid("/nowhere") {
		t.Error("of a process that ended")
	}
}

// seenBy are the mounts that a process sees, as many as are wanted.
func seenBy(proc Proc, pid, most int) map[uint64]string {
	out := map[uint64]string{}
	proc.Mounted(pid, func(number uint64, dir string) bool {
		out[number] = dir
		return len(out) < most
	})
	return out
}

func TestWhichDirectoryOfAFilesystemAMountHasIsKnownByItsNumber(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	lines := "20 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/a /scratch rw shared:1 - ext4 /dev/sda1 rw\n" +
		"nonsense\n30 20 0:50 / / rw - overlay overlay rw,lowerdir=" + strings.Repeat("/a:", 50_000) + "\n40 20 8:1 /b\\040c /d rw - ext4 /dev/sda1 rw\n"
	if err := os.WriteFile(filepath.Join(proc, "7", "mountinfo"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got := seenBy(Proc(proc), 7, 10)
	if len(got) != 3 || got[20] != "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/a" || got[30] != "/" || got[40] != `/b\040c` {
		t.Errorf("%v", got)
	}
	if got := seenBy(Proc(proc), 7, 2); len(got) != 2 {
		t.Errorf("two are enough, and there are %v", got)
	}
	if got := seenBy(Proc(proc), 8, 10); len(got) != 0 {
		t.Errorf("of a process that ended: %v", got)
	}
	if got := seenBy("/proc", os.Getpid(), 10); len(got) == 0 {
		t.Error("this process has no mounts, says " + filepath.Join("/proc", strconv.Itoa(os.Getpid())))
	}
}
