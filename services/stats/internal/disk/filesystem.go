// Package disk measures filesystems and directories: what statfs says, what a
// directory tree takes (in the background, for it can be slow), and what the
// runtime reports of its own layers. It must never write or follow a link out
// of the tree that it was asked about.
package disk

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Filesystem is statfs' account of a mounted filesystem.
type Filesystem struct {
	// Time is when it was measured.
	Time time.Time
	// Capacity, Free and Available are bytes; Available is what an ordinary
	// user can have of Free.
	Capacity, Free, Available uint64
	// Inodes and InodesFree are numbers; both zero on filesystems that have no
	// fixed number of them.
	Inodes, InodesFree uint64
}

// Used is what is taken, in bytes.
func (f Filesystem) Used() uint64 { return f.Capacity - f.Free }

// InodesUsed is how many inodes are taken.
func (f Filesystem) InodesUsed() uint64 { return f.Inodes - f.InodesFree }

// Statfs measures the filesystem that a path is on.
func Statfs(path string) (Filesystem, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Filesystem{}, fmt.Errorf("measure the filesystem of %s: %w", path, err)
		}
		break
	}
	unit := uint64(st.Frsize) //nolint:gosec // Positive on every kernel.
	if unit == 0 {
		unit = uint64(st.Bsize) //nolint:gosec // As above.
	}
	return Filesystem{
		Time: time.Now(), Capacity: st.Blocks * unit, Free: st.Bfree * unit, Available: st.Bavail * unit,
		Inodes: st.Files, InodesFree: st.Ffree,
	}, nil
}
