package process

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
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
	// Root is whether it lies on the filesystem of the process's root directory, and that
	// is of directories laid over each other: what such a one weighs is found by its
	// directories, which do not show the file. btrfs and a device weigh it with all else. Who
	// can only read it may have one of the image's, which takes no room of its own.
	Root bool
}

// deleted is what the kernel writes behind the name of such a file.
const deleted = " (deleted)"

// Unlinked has found called with each regular file that a process holds open and that
// has no name any more; a file that is open twice is found twice. False: ctx was done
// before all were looked at. A process that ended has none.
func (p Proc) Unlinked(ctx context.Context, pid int, found func(Unlinked)) (all bool) {
	dir := filepath.Join(string(p), strconv.Itoa(pid))
	f, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return true
	}
	defer f.Close() //nolint:errcheck // It was only read.
	root, err := DeviceOf(filepath.Join(dir, "root"))
	if err != nil {
		return true
	}
	laid := sync.OnceValue(func() bool { return overlaid(filepath.Join(dir, "mountinfo")) })
	for ctx.Err() == nil {
		names, err := f.Readdirnames(namesAtOnce)
		for _, name := range names {
			if u, is := unlinked(int(f.Fd()), filepath.Join(dir, "fd", name), name); is {
				u.Root = u.Inode.Device == root && laid() && writable(filepath.Join(dir, "fd", name))
				found(u)
			}
		}
		if err != nil {
			return true // All were read, or it has ended.
		}
	}
	return false
}

func unlinked(dir int, path, name string) (Unlinked, bool) {
	target, err := os.Readlink(path)
	if err != nil || !strings.HasSuffix(target, deleted) || !strings.HasPrefix(target, "/") {
		return Unlinked{}, false
	}
	st, err := statx(dir, name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0 {
		return Unlinked{}, false
	}
	return Unlinked{Inode: Inode{deviceOf(st), st.Ino}, Bytes: st.Blocks * 512, Path: strings.TrimSuffix(target, deleted)}, true
}

// writable says of an entry of a process's open files whether it may write there.
// Source: https://docs.kernel.org/filesystems/proc.html, fd
func writable(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Perm()&0o200 != 0
}

// longestMounts bounds what is read of a process's mounts.
const longestMounts = 1 << 20

// overlaid says by a process's mounts whether its root directory is an overlay. No server
// is asked for it. Source: https://docs.kernel.org/filesystems/proc.html, mountinfo
func overlaid(mounts string) (is bool) {
	f, err := os.Open(mounts)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // It was only read.
	lines := bufio.NewScanner(io.LimitReader(f, longestMounts))
	for lines.Scan() {
		mount, kind, found := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(mount); found && len(fields) > 4 && fields[4] == "/" {
			name, _, _ := strings.Cut(kind, " ")
			is = name == "overlay" || strings.HasPrefix(name, "fuse")
		}
	}
	return is
}

// DeviceOf is the filesystem that a directory is on.
func DeviceOf(dir string) (Device, error) {
	st, err := statx(unix.AT_FDCWD, dir)
	return deviceOf(st), err
}

func deviceOf(st unix.Statx_t) Device { return Device{st.Dev_major, st.Dev_minor} }

// statx asks no server that may be away.
func statx(dir int, name string) (st unix.Statx_t, err error) {
	err = unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_NLINK|unix.STATX_INO|unix.STATX_BLOCKS, &st)
	return st, err
}
