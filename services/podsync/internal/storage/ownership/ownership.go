// Package ownership gives a volume's files to a pod's group.
//
// It owns the walk through them, in which it follows no link: containers may run that
// have the volume. It must never decide whether a volume is to be given away.
package ownership

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
)

// Of is the group that owns the pod's volumes; nil for none.
func Of(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// Change is how a tree's files are given away.
type Change struct {
	// Group they get; nothing is done when it is nil.
	Group *int64
	// ReadOnly: its members may read, and not write.
	ReadOnly bool
	// OnMismatch does nothing when the tree's root is as it would become
	// (fsGroupChangePolicy OnRootMismatch).
	OnMismatch bool
	// Given counts the files that were looked at; may be nil.
	Given *atomic.Int64
	// Skip is told of what cannot be changed, and the rest is; nil ends with the first.
	Skip func(err error)
	// Open opens a name of a directory as a path (O_PATH), and no link's end; what it says is
	// not there (ENOENT) is left as it is. nil opens what is mounted there, too; another
	// process that does it (ApplyApart) always does.
	Open func(dir *os.File, name string) (fd int, err error)
}

// Apply gives a tree to the group, what lies deepest first: files readable (and writable
// unless ReadOnly) for owner and group, directories searchable and with the group
// inherited. The root is the last, so that it shows that all is done.
func (c Change) Apply(ctx context.Context, root string) error {
	if c.Group == nil {
		return nil
	}
	fd, err := eintr.Open(root, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	top := os.NewFile(uintptr(fd), root) //nolint:gosec // A descriptor is not negative.
	defer top.Close()
	return c.ApplyTo(ctx, top)
}

// ApplyTo is Apply of a tree whose root is open, also as a path.
func (c Change) ApplyTo(ctx context.Context, root *os.File) error {
	if c.OnMismatch {
		if done, err := c.done(root); err != nil || done {
			return err
		}
	}
	w := walk{Change: c, ctx: ctx}
	return w.all(root)
}

// done says whether a file is as it would become.
func (c Change) done(file *os.File) (bool, error) {
	var st unix.Stat_t
	if err := eintr.Fstat(int(file.Fd()), &st); err != nil {
		return false, err
	}
	return int64(st.Gid) == *c.Group && st.Mode|c.bits(st.Mode) == st.Mode, nil
}

// bits are what a file of this mode gets beside what it has.
func (c Change) bits(mode uint32) uint32 {
	var more uint32 = 0o660
	if c.ReadOnly {
		more = 0o440
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		more |= unix.S_ISGID | 0o110
	}
	return more
}

// own gives away one file.
func (c Change) own(file *os.File, st unix.Stat_t) error {
	mode := (st.Mode | c.bits(st.Mode)) & 0o7777
	if int64(st.Gid) == *c.Group && mode == st.Mode&0o7777 {
		return nil
	}
	if int64(st.Gid) != *c.Group {
		if err := eintr.Fchownat(int(file.Fd()), "", -1, int(*c.Group), unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	// Also when it has that mode: the kernel takes set-user-ID from who gets a group.
	return eintr.Chmod("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), mode)
}
