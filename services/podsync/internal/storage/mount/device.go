package mount

import (
	"fmt"
	"strings"

	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// Device runs blkid, mkfs, fsck and mount, each by itself and in no shell.
func (k *Kernel) Device(device, target, filesystem string, options []string) error {
	if filesystem == "" || strings.ContainsFunc(filesystem, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return fmt.Errorf("%q is no filesystem's name", filesystem) // it becomes part of a program's
	}
	format := mountutils.NewSafeFormatAndMount(mountutils.NewWithoutSystemd(""), exec.New())
	if err := format.FormatAndMount(device, target, filesystem, options); err != nil {
		return fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", device, target, filesystem, err)
	}
	return nil
}
