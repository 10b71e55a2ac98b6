package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Device is a filesystem's number.
type Device struct{ Major, Minor uint32 }

// Inode is a file, whatever it is called.
type Inode struct {
	Device Device
	Number uint64
}

// Unlinked is a file that is open and has no name any more.
type Unlinked struct {
	Inode Inode
	// Bytes is what lies in it.
	Bytes uint64
	// Path is what it was called, as the process saw it.
	Path string
	// Mount is the number of the mount on which it was opened; 0 before Linux 5.8.
	Mount uint64
	// Writable is whether the process may write there.
	Writable bool
	// Root is whether it lies on the filesystem of the process's root directory, and that
	// is of directories laid over each other: what such a one weighs is found by its
	// directories, which do not show the file. btrfs and a device weigh it with all else. Who
	// can only read it may have one of the image's, which takes no room of its own.
	Root bool
}

// deleted is what the kernel writes behind the name of such a file.
const deleted = " (deleted)"

// held are what a process holds beside its open files: its program, where it is, and what
// its root directory is.
var held = [...]string{"exe", "cwd", "root"}

// Unlinked has found called with each file that a process holds open and that has no name
// any more, whatever its kind: each has an inode. One that is open twice is found twice.
// False: ctx was done before all were looked at, and nothing more is. A process that ended has none.
func (p Proc) Unlinked(ctx context.Context, pid int, found func(Unlinked)) (all bool) {
	return p.tables(ctx, pid, func(dir string) bool { return unlinkedOf(ctx, dir, found) })
}

// unlinkedOf is Unlinked of a process's or a thread's directory.
func unlinkedOf(ctx context.Context, dir string, found func(Unlinked)) (all bool) {
	f, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return true
	}
	defer f.Close() //nolint:errcheck // It was only read.
	root, err := DeviceOf(filepath.Join(dir, "root"))
	if err != nil {
		return true
	}
	for _, name := range held {
		if u, is := unlinked(filepath.Join(dir, name)); is {
			found(u)
		}
	}
	laid := sync.OnceValue(func() bool { return overlaid(filepath.Join(dir, "mountinfo")) })
	for ctx.Err() == nil {
		names, err := f.Readdirnames(namesAtOnce)
		for _, name := range names {
			path := filepath.Join(dir, "fd", name)
			if u, is := unlinked(path); is {
				u.Writable = writable(path)
				u.Root = u.Writable && u.Inode.Device == root && laid()
				found(u)
			}
		}
		if err != nil {
			return true // All were read, or it has ended.
		}
	}
	return false
}

// unlinked looks at a link of a process's. The kernel does not say what a file is called
// that lies deeper than a name may be long.
func unlinked(path string) (Unlinked, bool) {
	target, err := os.Readlink(path)
	if errors.Is(err, unix.ENAMETOOLONG) {
		target, err = "/..."+deleted, nil
	}
	if err != nil || !strings.HasSuffix(target, deleted) || !strings.HasPrefix(target, "/") {
		return Unlinked{}, false
	}
	st, err := statx(path)
	if err != nil || st.Nlink > 0 {
		return Unlinked{}, false
	}
	out := Unlinked{Inode: Inode{deviceOf(st), st.Ino}, Bytes: st.Blocks * 512, Path: strings.TrimSuffix(target, deleted)}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		out.Mount = st.Mnt_id
	}
	return out, true
}

// writable says of an entry of a process's open files whether it may write there.
// Source: https://docs.kernel.org/filesystems/proc.html, fd
func writable(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Perm()&0o200 != 0
}

// DeviceOf is the filesystem that a directory is on.
func DeviceOf(dir string) (Device, error) {
	st, err := statx(dir)
	return deviceOf(st), err
}

func deviceOf(st unix.Statx_t) Device { return Device{st.Dev_major, st.Dev_minor} }

// statx asks no server that may be away.
func statx(path string) (st unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_NLINK|unix.STATX_INO|unix.STATX_BLOCKS|unix.STATX_MNT_ID, &st)
	return st, err
}
