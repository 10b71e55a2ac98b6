package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/storage/projectquota"
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
	parent, openErr := os.Open(filepath.Dir(path))
	if openErr != nil {
		return openErr
	}
	defer func() { _ = parent.Close() }()
	top, openErr := t.directory(parent, filepath.Base(path), path)
	switch {
	case errors.Is(openErr, unix.ENOTDIR):
		return err
	case openErr != nil:
		return openErr
	}
	defer func() { _ = top.Close() }()
	t.top = top
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
	ctx     context.Context
	top     *os.File
	openat2 openat2
	// setFlags sets the attributes of an open file or directory.
	setFlags func(fd int, flags uint32) error
	// renameat2 moves, and passNoneOn has a directory take what is of any project.
	renameat2  func(olddir int, old string, newdir int, new string, flags uint) error
	passNoneOn func(dir *os.File) error
	moved      bool // something was moved to the top and waits there
	count      int
}

func newTree(ctx context.Context) *tree {
	return &tree{ctx: ctx, openat2: unix.Openat2, setFlags: setFlags, renameat2: unix.Renameat2, passNoneOn: projectquota.PassNoneOn}
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
	sub, openErr := t.directory(dir, name, full)
	switch {
	case openErr == nil:
	case errors.Is(openErr, unix.ENOENT):
		return nil
	case !errors.Is(openErr, unix.ENOTDIR):
		return openErr
	case errors.Is(err, unix.EPERM):
		return t.removeForbidden(dir, name, full, 0)
	default:
		return &os.PathError{Op: "remove", Path: full, Err: err}
	}
	defer func() { _ = sub.Close() }()
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

// lift moves a directory that lies too deep to the top. A pod may have left attributes that
// forbid it, or have given the top a project, into which nothing of another is moved.
func (t *tree) lift(dir, sub *os.File, name string) error {
	freed, disowned := false, false
	for {
		t.count++
		to := ".deep-" + strconv.Itoa(t.count)
		err := t.renameat2(int(dir.Fd()), name, int(t.top.Fd()), to, unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST):
			continue
		case errors.Is(err, unix.EPERM) && !freed:
			freed = true
			for _, f := range []*os.File{dir, sub, t.top} {
				if _, err := t.free(f, f.Name()); err != nil {
					return err
				}
			}
			continue
		case errors.Is(err, unix.EXDEV) && !disowned:
			disowned = true
			passErr := t.passNoneOn(t.top)
			if passErr == nil {
				continue
			}
			err = fmt.Errorf("%w (the top has a project that it passes on, and that cannot be taken away; chattr -P does it by hand: %w)", err, passErr)
		}
		t.moved = true
		return gone("move", sub.Name(), err)
	}
}

// directory opens a directory of an open one, unless something is mounted on it.
func (t *tree) directory(dir *os.File, name, full string) (*os.File, error) {
	handle, err := t.handle(dir, name, full)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(handle) }()
	return within(handle, full)
}

// handle gives a handle of what has a name in an open directory, unless something is mounted
// on it.
func (t *tree) handle(dir *os.File, name, full string) (int, error) {
	fd, err := t.openat2.handle(dir, name)
	switch {
	case errors.Is(err, errMountPoint):
		err = fmt.Errorf("%s %w", full, err)
	case err != nil:
		err = &os.PathError{Op: "open", Path: full, Err: err}
	}
	return fd, err
}
