package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// mostOpen is how many directories are open at once below the top, so that no tree
	// exhausts descriptors. Those above are closed, and found again by "..": nothing is moved,
	// which a pod may have made impossible.
	mostOpen = 64
	// mostClosed is of how many closed ones it is known which they are, with 16 bytes each. What
	// lies deeper is removed first, and the rest from the top anew.
	mostClosed = 1 << 20
	// mostNames is how many names of a directory are read at once.
	mostNames = 512
	// mostVain is how often a directory is read in a row of which nothing is removed: others may
	// remove what was read, but not for ever.
	mostVain = 100
)

// errMoved says that somebody moves directories while they are removed.
var errMoved = errors.New("a directory of it was moved meanwhile; it is tried again")

// errListed says that a filesystem is not right.
var errListed = errors.New("its filesystem lists again and again what it says is not there; check it")

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
	if err := t.empty(top, path); err != nil {
		return err
	}
	err = os.Remove(path)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if _, err := t.free(top, path); err != nil { // never the directory above: that is not the tree's
		return err
	}
	return os.Remove(path)
}

// tree is one removal.
type tree struct {
	ctx     context.Context
	openat2 openat2
	// unlinkat removes a name of an open directory.
	unlinkat func(dir int, name string, how int) error
	// setFlags sets the attributes of an open file or directory.
	setFlags func(fd int, flags uint32) error
	// top is the directory that all lies in, and levels are those below it that are open, the
	// deepest last; closed are those between. mostClosed is as the constant, but in tests.
	top        level
	closed     []identity
	levels     []level
	mostClosed int
	// forgot: of some that are closed it is not known any more which they are.
	forgot bool
}

// level is a directory that is being emptied.
type level struct {
	identity
	name string
	dir  *os.File
	// names were read of it and are there yet. Of the first it is the turn.
	names []string
	// vain is how often they were read since one was removed.
	vain int
}

// identity says which directory it is: what a name leads to may change.
type identity struct{ dev, ino uint64 }

func newTree(ctx context.Context) *tree {
	return &tree{ctx: ctx, openat2: unix.Openat2, unlinkat: unix.Unlinkat, setFlags: setFlags, mostClosed: mostClosed}
}

func (t *tree) last() *level {
	if len(t.levels) == 0 {
		return &t.top
	}
	return &t.levels[len(t.levels)-1]
}

// path is that of a name in the last directory, without the names of those that are closed: a pod
// decides how many there are.
func (t *tree) path(name string) string {
	var out strings.Builder
	out.WriteString(t.top.name)
	if len(t.closed) > 0 || t.forgot {
		out.WriteString("/…")
	}
	for i := range t.levels {
		out.WriteString("/" + t.levels[i].name)
	}
	if name != "" {
		out.WriteString("/" + name)
	}
	return out.String()
}

// empty removes all entries of an open directory.
func (t *tree) empty(top *os.File, path string) error {
	t.top = level{name: path, dir: top}
	defer func() { t.close() }()
	for {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		name, err := t.last().next()
		switch {
		case err == nil:
			err = t.remove(name)
		case errors.Is(err, io.EOF) && len(t.levels) == 0:
			return nil
		case errors.Is(err, io.EOF):
			err = t.up()
		case errors.Is(err, errListed):
			err = &os.PathError{Op: "remove", Path: t.path(""), Err: err}
		}
		if err != nil {
			return err
		}
	}
}

// close begins anew from the top.
func (t *tree) close() {
	for i := range t.levels {
		_ = t.levels[i].dir.Close()
	}
	t.levels, t.closed, t.forgot, t.top.names, t.top.vain = nil, nil, false, nil, 0
}

// next is the next name of a directory; io.EOF when it is empty.
func (l *level) next() (string, error) {
	if len(l.names) == 0 {
		if l.vain++; l.vain > mostVain {
			return "", errListed
		}
		if _, err := l.dir.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		var err error
		if l.names, err = l.dir.Readdirnames(mostNames); err != nil {
			return "", err
		}
	}
	return l.names[0], nil
}

// removed is what came of the removal of the first name of the last directory.
func (t *tree) removed(op string, err error) error {
	l := t.last()
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return gone(op, t.path(l.names[0]), err)
	}
	if err == nil {
		l.vain = 0
	}
	l.names = l.names[1:]
	return nil
}

// remove removes a name of the last directory, or goes into it.
func (t *tree) remove(name string) error {
	l := t.last()
	fd := int(l.dir.Fd())
	err := t.unlinkat(fd, name, 0)
	if errors.Is(err, unix.EISDIR) && t.unlinkat(fd, name, unix.AT_REMOVEDIR) == nil {
		return t.removed("", nil)
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return t.removed("remove", err)
	}
	full := t.path(name)
	sub, openErr := t.directory(l.dir, name, full)
	switch {
	case openErr == nil:
		return t.down(sub, name)
	case errors.Is(openErr, unix.ENOENT):
		return t.removed("open", openErr)
	case !errors.Is(openErr, unix.ENOTDIR):
		return openErr
	case errors.Is(err, unix.EPERM):
		return t.forbidden(name, 0)
	}
	return &os.PathError{Op: "remove", Path: full, Err: err}
}

// forbidden removes a name of the last directory, which the kernel forbids.
func (t *tree) forbidden(name string, how int) error {
	if err := t.removeForbidden(t.last().dir, name, t.path(name), how); err != nil {
		return err
	}
	return t.removed("", nil)
}

// down goes into a directory.
func (t *tree) down(dir *os.File, name string) error {
	var st unix.Stat_t
	err := unix.Fstat(int(dir.Fd()), &st)
	if err == nil && st.Ino == subvolumeRoot {
		err = writable(dir)
	}
	if err != nil {
		_ = dir.Close()
		return &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	if len(t.levels) >= mostOpen {
		if len(t.closed) >= t.mostClosed {
			// The half: whatever branches below the others is none from the top.
			t.closed, t.forgot = append(t.closed[:0], t.closed[(len(t.closed)+1)/2:]...), true
		}
		_ = t.levels[0].dir.Close()
		t.closed = append(t.closed, t.levels[0].identity)
		t.levels = append(t.levels[:0], t.levels[1:]...)
	}
	t.levels = append(t.levels, level{name: name, dir: dir, identity: identity{st.Dev, st.Ino}})
	return nil
}

// up removes the last directory, which is empty, from the one that it lies in. If that was
// closed its names are read anew, and this one's is among them.
func (t *tree) up() error {
	if len(t.levels) == 1 && len(t.closed) > 0 {
		return t.again()
	}
	if len(t.levels) == 1 && t.forgot {
		t.close()
		return nil
	}
	below := *t.last()
	t.levels = t.levels[:len(t.levels)-1]
	defer func() { _ = below.dir.Close() }()
	l := t.last()
	err := t.unlinkat(int(l.dir.Fd()), l.names[0], unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EPERM) {
		return t.forbidden(l.names[0], unix.AT_REMOVEDIR)
	}
	return t.removed("rmdir", err)
}

// again opens the last directory that was closed, from the one below it, the only one that is
// open.
func (t *tree) again() error {
	below, was := t.levels[0], t.closed[len(t.closed)-1]
	fd, err := unix.Openat(int(below.dir.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: t.path(".."), Err: err}
	}
	dir := os.NewFile(uintptr(fd), "..") //nolint:gosec // A descriptor is not negative.
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (identity{st.Dev, st.Ino}) != was {
		err = errMoved
	}
	if err != nil {
		_ = dir.Close()
		return &os.PathError{Op: "open", Path: t.path(".."), Err: err}
	}
	_ = below.dir.Close()
	t.closed = t.closed[:len(t.closed)-1]
	t.levels[0] = level{name: "…", dir: dir, identity: was}
	return nil
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
