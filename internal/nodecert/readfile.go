package nodecert

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// longest bounds a file that is read, in bytes.
const longest = 1 << 20

// speaking are file systems whose files are the kernel's answers: reading one may do
// something, as taking the kernel's messages away from others does.
var speaking = []int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC}

// ReadFile reads a file that others may have put there. It follows links, and looks at
// what it has found before it opens it: to open a device may do something already. What
// is no regular file of a disk is refused, and one that is too large is not held.
func ReadFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a link that leads back to itself", ErrDamaged, path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	var on unix.Statfs_t
	if err := unix.Fstat(fd, &info); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := unix.Fstatfs(fd, &on); err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch {
	case info.Mode&unix.S_IFMT != unix.S_IFREG, slices.Contains(speaking, int64(on.Type)):
		return nil, fmt.Errorf("%w: %s is no regular file", ErrDamaged, path)
	case info.Size > longest:
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrDamaged, path, longest)
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, longest))
}
