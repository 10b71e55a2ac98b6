package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAFilesystemWithoutADeviceIsNotMountedInADevicesPlace: whoever names the filesystem of a
// disk of his own would have the host's processes in his pod, or all memory.
func TestAFilesystemWithoutADeviceIsNotMountedInADevicesPlace(t *testing.T) {
	device, target := filepath.Join(t.TempDir(), "device"), t.TempDir()
	if err := os.WriteFile(device, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", device).Run() // with root it could else be mounted
	k := New()
	for _, filesystem := range []string{"proc", "sysfs", "tmpfs", "ramfs"} {
		err := k.Device(device, target, filesystem, nil)
		if mounted, _ := k.Mounted(target); mounted {
			t.Errorf("%s is mounted", filesystem)
			if err := k.Unmount(target); err != nil {
				t.Fatal(err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), "is no filesystem of a device") {
			t.Errorf("%s: %v", filesystem, err)
		}
	}
}

func TestWhatWasMountedIsKnownByTheKernelsListOfFilesystems(t *testing.T) {
	const list = "nodev\tproc\nnodev\tfuse\n\text4\n\tfuseblk\n"
	for name, want := range map[string]bool{"proc": true, "fuse": true, "fuse.sshfs": true, "ext4": false, "fuseblk": false, "fuseblk.ntfs": false, "xfs": false} {
		if got := deviceless(list, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
