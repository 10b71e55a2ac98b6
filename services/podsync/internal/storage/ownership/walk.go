package ownership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
)

const (
	// mostDepth bounds how deep directories lie that are given away: no path that a kernel
	// takes (PATH_MAX) names one that lies deeper.
	mostDepth = unix.PathMax / 2
	// mostOpen is how many of them are open at once. Those above are closed, and found
	// again by "..".
	mostOpen = 32
	// mostRead is how much of a directory is read at once, in bytes; of each the names that
	// were read are kept.
	mostRead = 8 << 10
)

// errMoved says that somebody has moved a directory while what is in it was given away.
var errMoved = errors.New("it was moved meanwhile; try again")

// walk goes through a tree, what lies deepest first.
type walk struct {
	Change
	ctx    context.Context
	levels []*level
	read   []byte
}

// level is a directory whose content is being given away.
type level struct {
	name string
	// dir is nil while it is closed.
	dir *os.File
	st  unix.Stat_t
	// names were read of it and are not given away yet; at is where those after them begin,
	// once it was closed.
	names []string
	at    int64
}

// all gives away what is open as a path, with all below it.
func (w *walk) all(top *os.File) error {
	defer w.close()
	if err := w.take(top, top.Name()); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if w.ctx.Err() != nil {
			return w.failed("", context.Cause(w.ctx))
		}
		name, err := w.next()
		switch {
		case err == nil:
			err = w.entry(name)
		case errors.Is(err, io.EOF):
			err = w.up(nil)
		default:
			err = w.up(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) last() *level { return w.levels[len(w.levels)-1] }

func (w *walk) close() {
	for _, l := range w.levels {
		if l.dir != nil {
			_ = l.dir.Close()
		}
	}
}

// entry gives away what has a name in the last directory, or goes into it.
func (w *walk) entry(name string) error {
	open := w.Open
	if open == nil {
		open = openPath
	}
	fd, err := open(w.last().dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed meanwhile
	}
	if err != nil {
		return w.skip(name, err)
	}
	file := os.NewFile(uintptr(fd), name) //nolint:gosec // A descriptor is not negative.
	defer file.Close()
	return w.take(file, name)
}

func openPath(dir *os.File, name string) (int, error) {
	return eintr.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// take gives away a file, which is open as a path, or goes into it.
func (w *walk) take(file *os.File, name string) error {
	if w.Given != nil {
		w.Given.Add(1)
	}
	var st unix.Stat_t
	err := eintr.Fstat(int(file.Fd()), &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = w.down(file, name, st)
	default:
		err = w.own(file, st)
	}
	if err != nil {
		return w.skip(name, err)
	}
	return nil
}

// down goes into a directory.
func (w *walk) down(path *os.File, name string, st unix.Stat_t) error {
	if len(w.levels) > mostDepth {
		return fmt.Errorf("it lies more than %d directories deep", mostDepth)
	}
	fd, err := eintr.Openat(int(path.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name) //nolint:gosec // A descriptor is not negative.
	// It is closed already for who comes up from below and goes down beside.
	if above := len(w.levels) - mostOpen; above >= 0 && w.levels[above].dir != nil {
		if err := w.levels[above].close(); err != nil {
			_ = dir.Close()
			return err
		}
	}
	w.levels = append(w.levels, &level{name: name, dir: dir, st: st})
	return nil
}

// up ends with the last directory, which is given away unless its content could not be. One
// that was removed meanwhile is as if it had never been there, unless it is the root.
func (w *walk) up(failed error) error {
	l := w.last()
	defer l.dir.Close()
	switch {
	case failed == nil:
		failed = w.own(l.dir, l.st)
	case errors.Is(failed, unix.ENOENT) && len(w.levels) > 1:
		failed = nil
	}
	w.levels = w.levels[:len(w.levels)-1]
	if failed != nil {
		if err := w.skip(l.name, failed); err != nil {
			return err
		}
	}
	if len(w.levels) == 0 || w.last().dir != nil {
		return nil
	}
	if err := w.last().again(l.dir); err != nil {
		return w.failed("", err)
	}
	return nil
}

// skip tells of what cannot be given away, or ends with it; name is that in the last directory.
func (w *walk) skip(name string, err error) error {
	err = w.failed(name, err)
	if w.Skip == nil || w.ctx.Err() != nil {
		return err
	}
	w.Skip(err)
	return nil
}

// failed names what could not be given away.
func (w *walk) failed(name string, err error) error {
	var path strings.Builder
	for _, l := range w.levels {
		path.WriteString(l.name + "/")
	}
	at := strings.TrimSuffix(path.String()+name, "/")
	if len(at) > unix.PathMax {
		at = at[:unix.PathMax] + "…"
	}
	return fmt.Errorf("give %s to group %d: %w", at, *w.Group, err)
}

// next is the next name in the last directory; io.EOF after them all.
func (w *walk) next() (string, error) {
	l := w.last()
	if w.read == nil {
		w.read = make([]byte, mostRead)
	}
	for len(l.names) == 0 {
		n, err := eintr.ReadDirent(int(l.dir.Fd()), w.read)
		switch {
		case err != nil:
			return "", os.NewSyscallError("getdents", err)
		case n == 0:
			return "", io.EOF
		default:
			_, _, l.names = unix.ParseDirent(w.read[:n], -1, nil)
		}
	}
	name := l.names[0]
	l.names = l.names[1:]
	return name, nil
}

// close closes a directory for as long as what is below it is given away.
func (l *level) close() error {
	at, err := eintr.Seek(int(l.dir.Fd()), 0, io.SeekCurrent)
	if err != nil {
		return os.NewSyscallError("lseek", err)
	}
	l.at = at
	_ = l.dir.Close()
	l.dir = nil
	return nil
}

// again opens a directory that was closed, from one that lies in it.
func (l *level) again(below *os.File) error {
	fd, err := eintr.Openat(int(below.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), l.name) //nolint:gosec // A descriptor is not negative.
	var st unix.Stat_t
	err = eintr.Fstat(fd, &st)
	if err == nil && (st.Dev != l.st.Dev || st.Ino != l.st.Ino) {
		err = errMoved
	}
	if err == nil {
		_, err = eintr.Seek(fd, l.at, io.SeekStart)
	}
	if err != nil {
		_ = dir.Close()
		return err
	}
	l.dir = dir
	return nil
}
