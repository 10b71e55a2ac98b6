package mount

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// restrictions are the options that one mount of a filesystem can have by itself, and
// what they are to the kernel: as an attribute, and as a flag where it knows no
// attributes (before Linux 5.12).
func restrictions() map[string][2]uint64 {
	return map[string][2]uint64{
		"ro": {unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY}, "nosuid": {unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID},
		"nodev": {unix.MOUNT_ATTR_NODEV, unix.MS_NODEV}, "noexec": {unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
		"noatime": {unix.MOUNT_ATTR_NOATIME, unix.MS_NOATIME}, "nodiratime": {unix.MOUNT_ATTR_NODIRATIME, unix.MS_NODIRATIME},
		"relatime": {unix.MOUNT_ATTR_RELATIME, unix.MS_RELATIME}, "strictatime": {unix.MOUNT_ATTR_STRICTATIME, unix.MS_STRICTATIME},
	}
}

// CheckRestrictions refuses options that Restrict does not know.
func CheckRestrictions(options []string) error {
	known := restrictions()
	for _, o := range options {
		if _, is := known[o]; !is && o != "rw" && o != "bind" {
			return podstate.VolumeOptions.Wrap(fmt.Errorf("mount option %q is none that a directory can be mounted with; those are ro, rw, nosuid, nodev, noexec, noatime, nodiratime, relatime and strictatime", o))
		}
	}
	return nil
}

// Restrict gives the mount on target options, beside those that it has. Idempotent.
func (k *Kernel) Restrict(target string, options []string) error {
	if err := CheckRestrictions(options); err != nil {
		return err
	}
	var attributes, flags uint64
	for name, o := range restrictions() {
		if slices.Contains(options, name) {
			attributes, flags = attributes|o[0], flags|o[1]
		}
	}
	if flags == 0 {
		return nil
	}
	clear := uint64(0)
	if slices.ContainsFunc(options, func(o string) bool { return o != "nodiratime" && strings.HasSuffix(o, "atime") }) {
		clear = unix.MOUNT_ATTR__ATIME // one of several, which the kernel sets together
	}
	err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_set: attributes, Attr_clr: clear})
	if errors.Is(err, unix.ENOSYS) {
		err = restrictByFlags(target, flags)
	}
	if err != nil {
		return fmt.Errorf("mount %s with %s: %w", target, strings.Join(options, ","), err)
	}
	return nil
}

// restrictByFlags is Restrict before Linux 5.12. What the mount has stays.
func restrictByFlags(target string, flags uint64) error {
	var st unix.Statfs_t
	if err := eintr.Statfs(target, &st); err != nil {
		return err
	}
	const kept = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC // as statfs has them
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|uintptr(flags)|uintptr(st.Flags)&kept, "")
}
