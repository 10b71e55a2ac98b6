package volume

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A subvolume of btrfs, which everybody may make who may write to a directory, and whose owner
// may have it only read.
// Source: https://btrfs.readthedocs.io/en/latest/btrfs-subvolume.html, linux/btrfs.h
const (
	// subvolumeRoot is the inode of the directory that is one.
	subvolumeRoot = 256
	getSubvolume  = 0x80089419
	setSubvolume  = 0x4008941a
	readOnly      = 1 << 1
)

// writable has what is in a subvolume removable, if the directory is one that is only read.
func writable(dir *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil || fs.Type != unix.BTRFS_SUPER_MAGIC {
		return err
	}
	var flags uint64
	if err := subvolume(dir, getSubvolume, &flags); err != nil || flags&readOnly == 0 {
		return err
	}
	flags &^= readOnly
	if err := subvolume(dir, setSubvolume, &flags); err != nil {
		return fmt.Errorf("it is a read-only subvolume, and that cannot be taken away (btrfs property set -f PATH ro false does it by hand): %w", err)
	}
	return nil
}

func subvolume(dir *os.File, request uintptr, flags *uint64) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(flags))); errno != 0 { //nolint:gosec // As ioctl(2) wants it.
		return errno
	}
	return nil
}
