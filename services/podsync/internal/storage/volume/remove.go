package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how deep removal goes with a directory open at each level;
// what lies deeper is moved up first, so that no tree exhausts descriptors.
const maxDepth = 64

// removeTree removes path and everything below it, also what a pod has made immutable. It
// follows no symlink, goes into no other mount (that is an error), and stops with ctx. A
// path that does not exist is fine.
func removeTree(ctx context.Context, path string) error {
	return newTree(ctx).removeAll(path)
}

func (t *tree) removeAll(path string) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	fd, openErr := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if openErr != nil {
		return err
	}
	top := os.NewFile(uintptr(fd), path)
	defer func() { _ = top.Close() }()
	t.top = top
	parent, openErr := os.Open(filepath.Dir(path))
	if openErr != nil {
		return openErr
	}
	defer func() { _ = parent.Close() }()
	if err := t.notMounted(int(parent.Fd()), fd, path); err != nil {
		return err
	}
	for {
		t.moved = false
		if err := t.empty(top, path, 0); err != nil {
			return err
		}
		if t.moved {
			continue
		}
		err := os.Remove(path)
		if !errors.Is(err, unix.EPERM) {
			return err
		}
		if _, err := t.free(top, path); err != nil { // never the directory above: that is not the tree's
			return err
		}
		return os.Remove(path)
	}
}

// tree is one removal.
type tree struct {
	ctx context.Context
	top *os.File
	// mountRoot says whether something is mounted on an open directory, if that is
	// known.
	mountRoot func(fd int) (is, known bool)
	// setFlags sets the attributes of an open file or directory.
	setFlags func(fd int, flags uint32) error
	moved    bool // something was moved to the top and waits there
	count    int
}

func newTree(ctx context.Context) *tree {
	return &tree{ctx: ctx, mountRoot: mountRoot, setFlags: setFlags}
}

// empty removes all entries of an open directory.
func (t *tree) empty(dir *os.File, path string, depth int) error {
	for {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		entries, err := dir.Readdirnames(512)
		if errors.Is(err, io.EOF) || (err == nil && len(entries) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range entries {
			if err := t.remove(dir, path, name, depth); err != nil {
				return err
			}
		}
	}
}

// remove removes one entry of an open directory, or moves it to the top.
func (t *tree) remove(dir *os.File, path, name string, depth int) error {
	fd := int(dir.Fd())
	full := path + "/" + name
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return &os.PathError{Op: "remove", Path: full, Err: err}
	}
	child, openErr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if openErr != nil && errors.Is(err, unix.EPERM) {
		return t.removeForbidden(dir, name, full, 0)
	}
	if openErr != nil {
		return &os.PathError{Op: "remove", Path: full, Err: err}
	}
	sub := os.NewFile(uintptr(child), full)
	defer func() { _ = sub.Close() }()
	if err := t.notMounted(fd, child, full); err != nil {
		return err
	}
	if depth >= maxDepth {
		return t.lift(dir, sub, name)
	}
	if err := t.empty(sub, full, depth+1); err != nil {
		return err
	}
	err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EPERM) {
		return t.removeForbidden(dir, name, full, unix.AT_REMOVEDIR)
	}
	return gone("rmdir", full, err)
}

// lift moves a directory that lies too deep to the top.
func (t *tree) lift(dir, sub *os.File, name string) error {
	freed := false
	for {
		t.count++
		to := ".deep-" + strconv.Itoa(t.count)
		err := unix.Renameat2(int(dir.Fd()), name, int(t.top.Fd()), to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if errors.Is(err, unix.EPERM) && !freed {
			freed = true
			for _, f := range []*os.File{dir, sub, t.top} {
				if _, err := t.free(f, f.Name()); err != nil {
					return err
				}
			}
			continue
		}
		t.moved = true
		return gone("move", sub.Name(), err)
	}
}

// notMounted refuses a directory that something is mounted on.
func (t *tree) notMounted(parent, fd int, path string) error {
	is, known := t.mountRoot(fd)
	if !known {
		above, err1 := mountID(parent)
		own, err2 := mountID(fd)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("find out whether %s is a mount point: %w", path, err)
		}
		is = own != above
	}
	if is {
		return fmt.Errorf("%s is a mount point; unmount it first", path)
	}
	return nil
}

// mountRoot asks the kernel whether something is mounted on an open directory;
// before Linux 5.8 it does not know.
func mountRoot(fd int) (is, known bool) {
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &st) != nil {
		return false, false
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// mountID is the mount that an open file lies in; every kernel shows it.
func mountID(fd int) (string, error) {
	data, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("/proc shows no mount of an open file")
}
