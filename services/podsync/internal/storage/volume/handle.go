package volume

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// errMountPoint is of what something is mounted on.
var errMountPoint = errors.New("is a mount point; unmount it first")

// openat2 opens a name of an open directory, as the kernel does since Linux 5.6.
type openat2 func(dir int, name string, how *unix.OpenHow) (int, error)

// handle gives a handle of what has a name in an open directory, or errMountPoint. It asks
// nobody: whoever answers for what is mounted there may be silent, or gone, and an automounter
// would only now mount something.
func (open openat2) handle(dir *os.File, name string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	parent := int(dir.Fd())
	fd, err := open(parent, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV})
	if errors.Is(err, unix.EXDEV) {
		return -1, errMountPoint
	}
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	// Before Linux 5.6, or a seccomp filter.
	if fd, err = eintr.Openat(parent, name, flags, 0); err != nil {
		return -1, err
	}
	above, err1 := mount.ID(parent)
	own, err2 := mount.ID(fd)
	if err = errors.Join(err1, err2); err == nil && own == above {
		return fd, nil
	}
	_ = unix.Close(fd)
	if err != nil {
		return -1, fmt.Errorf("find out whether it is a mount point: %w", err)
	}
	return -1, errMountPoint
}

// within opens the directory that a handle is of.
func within(handle int, full string) (*os.File, error) {
	fd, err := eintr.Openat(handle, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: full, Err: err}
	}
	return os.NewFile(uintptr(fd), full), nil
}
