// Package ownership gives a volume's files to a pod's group.
//
// It owns the walk through them, in which it follows no link: containers may run that
// have the volume. It must never decide whether a volume is to be given away.
package ownership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// mostDepth bounds how deep directories lie that are given away: each is open while
// what is in it is given away.
const mostDepth = 256

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
}

// Apply gives a tree to the group, what lies deepest first: files readable (and writable
// unless ReadOnly) for owner and group, directories searchable and with the group
// inherited. The root is the last, so that it shows that all is done.
func (c Change) Apply(ctx context.Context, root string) error {
	if c.Group == nil {
		return nil
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	top := os.NewFile(uintptr(fd), root) //nolint:gosec // A descriptor is not negative.
	defer top.Close()
	if c.OnMismatch {
		if done, err := c.done(top); err != nil || done {
			return err
		}
	}
	return c.give(ctx, top, 0)
}

// done says whether a file is as it would become.
func (c Change) done(file *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
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

// give gives away a file, which is open as a path, with all below it.
func (c Change) give(ctx context.Context, file *os.File, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.Given != nil {
		c.Given.Add(1)
	}
	var st unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = c.below(ctx, file, depth)
	}
	if err == nil {
		err = c.own(file, st)
	}
	if err == nil {
		return nil
	}
	if c.Skip != nil && ctx.Err() == nil {
		c.Skip(fmt.Errorf("give %s to group %d: %w", file.Name(), *c.Group, err))
		return nil
	}
	if given := (*givenError)(nil); errors.As(err, &given) {
		return err
	}
	return &givenError{fmt.Errorf("give %s to group %d: %w", file.Name(), *c.Group, err)}
}

// givenError names the file already.
type givenError struct{ error }

func (e *givenError) Unwrap() error { return e.error }

// below gives away what is in a directory.
func (c Change) below(ctx context.Context, path *os.File, depth int) error {
	if depth == mostDepth {
		return fmt.Errorf("it lies more than %d directories deep", mostDepth)
	}
	fd, err := unix.Openat(int(path.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), path.Name()) //nolint:gosec // A descriptor is not negative.
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := c.entry(ctx, dir, name, depth); err != nil {
				return err
			}
		}
	}
}

func (c Change) entry(ctx context.Context, dir *os.File, name string, depth int) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), dir.Name()+"/"+name) //nolint:gosec // A descriptor is not negative.
	defer file.Close()
	return c.give(ctx, file, depth+1)
}

// own gives away one file.
func (c Change) own(file *os.File, st unix.Stat_t) error {
	mode := (st.Mode | c.bits(st.Mode)) & 0o7777
	if int64(st.Gid) == *c.Group && mode == st.Mode&0o7777 {
		return nil
	}
	if int64(st.Gid) != *c.Group {
		if err := unix.Fchownat(int(file.Fd()), "", -1, int(*c.Group), unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	// Also when it has that mode: the kernel takes set-user-ID from who gets a group.
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), mode)
}
