package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// Device runs blkid, mkfs, fsck and mount, each by itself and in no shell. A filesystem that
// is of no device, such as proc, is refused: the kernel would mount it all the same, and
// whoever makes pods may say which.
func (k *Kernel) Device(device, target, filesystem string, options []string) error {
	if filesystem == "" || strings.ContainsFunc(filesystem, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return fmt.Errorf("%q is no filesystem's name", filesystem) // it becomes part of a program's
	}
	if err := ofDevice(filesystem); err != nil {
		return err
	}
	format := mountutils.NewSafeFormatAndMount(mountutils.NewWithoutSystemd(""), exec.New())
	if err := format.FormatAndMount(device, target, filesystem, options); err != nil {
		return fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", device, target, filesystem, err)
	}
	// It may have become known to the kernel only now.
	kind, err := kindAt(target)
	if err == nil {
		err = ofDevice(kind)
	}
	if err != nil {
		if endErr := unmount(target); endErr != nil {
			return fmt.Errorf("%w; and it is still mounted at %s: %w", err, target, endErr)
		}
	}
	return err
}

// ofDevice refuses a filesystem that is of no device, as far as the kernel knows it.
func ofDevice(filesystem string) error {
	list, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("see which filesystems are of devices: %w", err)
	}
	if deviceless(string(list), filesystem) {
		return fmt.Errorf("%s is no filesystem of a device: correct the volume's fsType", filesystem)
	}
	return nil
}

// deviceless says whether a list of filesystems, as the kernel makes it, has one that is of
// no device. What stands behind a dot says who serves it.
func deviceless(list, filesystem string) bool {
	name, _, _ := strings.Cut(filesystem, ".")
	for line := range strings.Lines(list) {
		if slices.Equal(strings.Fields(line), []string{"nodev", name}) {
			return true
		}
	}
	return false
}

// kindAt is which filesystem is mounted at a path, by the kernel's table.
func kindAt(target string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", target, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(target))))
	if err != nil || len(mounts) == 0 {
		return "", fmt.Errorf("look for what is mounted on %s: %d mounts, %w", target, len(mounts), err)
	}
	return mounts[len(mounts)-1].FSType, nil
}
