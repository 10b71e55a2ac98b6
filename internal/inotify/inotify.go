// Package inotify has the kernel tell what becomes of the names in directories: which are
// made, moved and removed, and which files were written to and are closed.
//
// It owns one instance of inotify and what is asked of it. It must never ask for each
// write to a file: in a directory where others keep their logs whoever watches would do
// nothing but hear of it.
package inotify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrLost says that there were more events than the kernel keeps: all is to be looked at.
var ErrLost = errors.New("the kernel's queue of file events was full")

const (
	// names is what a name is to be told of: that it is something else now, or nothing.
	names = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// self is the same of the directory.
	self = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT
	// contents is what a file is to be told of.
	contents = unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
)

// Event is one change.
type Event struct {
	// Path is of a name in a directory, or of the directory, which is as Add was given it.
	Path string
	// Another: it was made, moved or removed; else it was written to and closed, or its
	// attributes have changed.
	Another bool
}

// Watcher watches directories. Safe for concurrent use.
type Watcher struct {
	events chan Event
	errs   chan error
	file   *os.File
	closed chan struct{}
	ended  sync.WaitGroup

	mu    sync.Mutex
	fd    int // of file; -1: it is closed
	paths map[int32][]string
	watch map[string]int32
}

// New returns a Watcher of nothing; Close ends it.
func New() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		events: make(chan Event), errs: make(chan error), closed: make(chan struct{}),
		file: os.NewFile(uintptr(fd), "inotify"), fd: fd, paths: map[int32][]string{}, watch: map[string]int32{}, //nolint:gosec // A descriptor is not negative.
	}
	w.ended.Go(w.run)
	return w, nil
}

// Events are what happens, in its order.
func (w *Watcher) Events() <-chan Event { return w.events }

// Errors say that events are lost.
func (w *Watcher) Errors() <-chan error { return w.errs }

// Add watches a directory: its names, and with files also what becomes of the files in it.
func (w *Watcher) Add(dir string, files bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return fs.ErrClosed
	}
	mask := uint32(names | self&^unix.IN_UNMOUNT | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK | unix.IN_MASK_ADD)
	if files {
		mask |= contents
	}
	n, err := unix.InotifyAddWatch(w.fd, dir, mask)
	if err != nil {
		return &fs.PathError{Op: "inotify_add_watch", Path: dir, Err: err}
	}
	wd := int32(n) //nolint:gosec // The kernel's is an int32.
	if was, watched := w.watch[dir]; watched && was != wd {
		w.forgetLocked(was, dir) // the name leads to another directory now
	}
	// A directory may have several names, by links and mounts, and has one watch.
	if w.watch[dir] = wd; !slices.Contains(w.paths[wd], dir) {
		w.paths[wd] = append(w.paths[wd], dir)
	}
	return nil
}

// Remove watches a directory no more; one that is not watched is none.
func (w *Watcher) Remove(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wd, watched := w.watch[dir]; watched {
		delete(w.watch, dir)
		w.forgetLocked(wd, dir)
	}
}

// forgetLocked takes a name from a watch, and ends it with the last.
func (w *Watcher) forgetLocked(wd int32, dir string) {
	left := slices.DeleteFunc(w.paths[wd], func(path string) bool { return path == dir })
	if w.paths[wd] = left; len(left) > 0 {
		return
	}
	delete(w.paths, wd)
	if w.fd >= 0 {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) //nolint:gosec // It may have ended with its directory.
	}
}

// Close ends the Watcher, and returns when nothing comes any more.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.fd < 0 {
		w.mu.Unlock()
		return fs.ErrClosed
	}
	w.fd = -1
	close(w.closed)
	w.mu.Unlock()
	err := w.file.Close()
	w.ended.Wait()
	return err
}

// run reads until the Watcher is closed.
func (w *Watcher) run() {
	buffer := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			w.lost(fmt.Errorf("read file events: %w", err))
			return
		}
		for raw := buffer[:n]; len(raw) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(raw)) //nolint:gosec // So the kernel has written it.
			mask, size := binary.NativeEndian.Uint32(raw[4:]), int(binary.NativeEndian.Uint32(raw[12:]))
			name, _, _ := bytes.Cut(raw[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
			raw = raw[unix.SizeofInotifyEvent+size:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				w.lost(ErrLost)
				continue
			}
			for _, dir := range w.take(wd, mask) {
				w.tell(Event{Path: filepath.Join(dir, string(name)), Another: mask&(names|self) != 0})
			}
		}
	}
}

// take returns of which directories an event is.
func (w *Watcher) take(wd int32, mask uint32) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirs := slices.Clone(w.paths[wd])
	if mask&unix.IN_IGNORED == 0 {
		return dirs
	}
	// The watch has ended with its directory, of which has been told.
	delete(w.paths, wd)
	for _, dir := range dirs {
		if w.watch[dir] == wd {
			delete(w.watch, dir)
		}
	}
	return nil
}

func (w *Watcher) tell(e Event) {
	select {
	case w.events <- e:
	case <-w.closed:
	}
}

func (w *Watcher) lost(err error) {
	select {
	case <-w.closed: // nobody is to hear of the end that was asked for
		return
	default:
	}
	select {
	case w.errs <- err:
	case <-w.closed:
	}
}
