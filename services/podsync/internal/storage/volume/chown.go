package volume

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
	"k8s.io/klog/v2"
)

// chown gives a tree that others may be changing to a group: containers of other pods
// have it mounted, or who owns its files works in it. It follows no symlink, goes into
// no other mount, and names nothing twice by its path. What cannot be given is logged
// once and left, as the kubelet does: a file more or less must not keep the pod from
// starting.
type chown struct {
	group int
	// files counts what was given.
	files atomic.Int64

	failed  int
	example error
}

// deepest is how many directories deep a tree is given: two descriptors are open for each.
const deepest = 200

// run gives root, which is open, and all in it, deepest first, so that what was cut
// short shows at the root.
func (c *chown) run(ctx context.Context, root *os.File) error {
	if err := c.tree(ctx, root, 0); err != nil {
		return err
	}
	if c.failed > 0 {
		klog.FromContext(ctx).Info("Some files of a volume could not be given to the pod's fsGroup; they stay as they are",
			"path", root.Name(), "group", c.group, "files", c.failed, "err", c.example)
	}
	return nil
}

// fail notes what could not be given.
func (c *chown) fail(name string, err error) {
	if c.failed++; c.example == nil {
		c.example = fmt.Errorf("%s: %w", name, err)
	}
}

func (c *chown) tree(ctx context.Context, dir *os.File, depth int) error {
	for {
		entries, err := dir.ReadDir(512)
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if err := c.entry(ctx, dir, e, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.fail(dir.Name(), err)
			break
		}
	}
	if err := c.give(int(dir.Fd()), unix.S_IFDIR); err != nil {
		c.fail(dir.Name(), err)
	}
	return nil
}

// entry gives one entry of a directory. Its error is ctx's.
func (c *chown) entry(ctx context.Context, dir *os.File, e os.DirEntry, depth int) error {
	fd, err := openat2(unix.Openat2).handle(dir, e.Name())
	if errors.Is(err, unix.ENOENT) || errors.Is(err, errMountPoint) {
		return nil
	}
	if err != nil {
		c.fail(e.Name(), err)
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	switch err = unix.Fstat(fd, &st); {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		err = c.give(fd, st.Mode&unix.S_IFMT)
	case depth >= deepest:
		err = fmt.Errorf("it lies more than %d directories deep", deepest)
	default:
		sub, openErr := within(fd, e.Name())
		if openErr == nil {
			defer func() { _ = sub.Close() }()
			return c.tree(ctx, sub, depth+1)
		}
		err = openErr
	}
	if err != nil {
		c.fail(e.Name(), err)
	}
	return nil
}

// give gives what is open to the group, which may read and write it then.
func (c *chown) give(fd int, kind uint32) error {
	c.files.Add(1)
	if err := unix.Fchownat(fd, "", -1, c.group, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if kind == unix.S_IFLNK {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := st.Mode&0o7777 | 0o660
	if kind == unix.S_IFDIR {
		mode |= unix.S_ISGID | 0o110
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode) // of what is open, never of its path
}

// givenAlready says whether a directory is the group's, so that what lies in it need not
// be looked at where the pod says so (fsGroupChangePolicy OnRootMismatch).
func givenAlready(pod *v1.Pod, dir *os.File, group int64) bool {
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	if policy == nil || *policy != v1.FSGroupChangeOnRootMismatch {
		return false
	}
	var st unix.Stat_t
	const wanted = unix.S_ISGID | 0o770
	return unix.Fstat(int(dir.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int64(st.Gid) == group && st.Mode&wanted == wanted
}
