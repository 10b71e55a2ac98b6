package smallfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// watch belongs to one Run.
type watch struct {
	*Guard
	watcher Watcher // nil while the kernel gives none
	log     logr.Logger
	told    map[string]bool // the files whose cut was told
	timed   map[string]bool // the files that only tick looks at
	leased  map[string]bool // the files that a container keeps to itself; tick looks again
	lack    error           // why there are such; nil when none was met
	said    time.Time       // when it was said last that events were lost
}

// open asks the kernel for a watcher.
func (w *watch) open() {
	var err error
	if w.watcher, err = w.deps.NewWatcher(); err != nil {
		w.watcher, w.lack = nil, fmt.Errorf("%w: raise fs.inotify.max_user_instances", err)
	}
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing is written through it
	}
}

func (w *watch) sources() (<-chan fsnotify.Event, <-chan error) {
	if w.watcher == nil {
		return nil, nil
	}
	return w.watcher.Told()
}

// tick looks at what the kernel does not watch, and asks it again.
func (w *watch) tick() {
	if w.watcher == nil {
		w.open()
	}
	for file := range w.timed {
		w.look(file)
	}
	for file := range w.leased {
		w.look(file)
	}
}

// report says in health how the files are looked at.
func (w *watch) report() {
	if w.watcher != nil && len(w.timed) == 0 {
		w.lack = nil
		w.deps.Health.Set("hosts files", true, "")
		return
	}
	w.deps.Health.Set("hosts files", false, fmt.Sprintf("pods' hosts files and termination logs are looked at every %v only, for the kernel does not watch them: %v", lookEvery, w.lack))
}

// saw leaves a file that was written to, or whose times or attributes were changed,
// alone for a while, and then hands it to again: who changes them all the time would
// else have this process do nothing but hear of it, and events of others be lost. The
// watch of a file that is removed goes with it.
func (w *watch) saw(event fsnotify.Event, again func(file string)) {
	switch {
	case event.Has(fsnotify.Remove):
		delete(w.told, event.Name)
		delete(w.leased, event.Name)
	case event.Has(fsnotify.Write), event.Has(fsnotify.Chmod):
		_ = w.watcher.Remove(event.Name) // it may be gone
		time.AfterFunc(restFor, func() { again(event.Name) })
	}
}

// lost says that events were lost, which containers can bring about.
func (w *watch) lost(err error) {
	if w.said.IsZero() || time.Since(w.said) >= sayAgain {
		w.said = time.Now()
		w.log.Error(err, "Some writes to pods' files were not seen; they are looked at now")
	}
}

// follow has the file watched from now on, by the kernel or else by time.
func (w *watch) follow(file string) {
	if w.watcher == nil {
		w.timed[file] = true
	} else if err := w.watcher.Add(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.timed[file], w.lack = true, fmt.Errorf("%w: raise fs.inotify.max_user_watches", err)
	} else {
		delete(w.timed, file)
	}
}

// look follows the file, and cuts it when it is too large already.
func (w *watch) look(file string) {
	w.follow(file)
	limit := int64(TerminationLimit)
	if filepath.Base(file) == hostsFile {
		limit = Limit
	}
	was, err := cut(file, limit)
	held := w.leased[file]
	busy := errors.Is(err, unix.ETXTBSY)
	if !busy && !errors.Is(err, unix.EAGAIN) {
		delete(w.leased, file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(w.told, file)
		delete(w.timed, file)
	case errors.Is(err, unix.EROFS):
		// The disk became read-only: no container writes to it either. Of that, and
		// not of each pod's file, others speak.
	case errors.Is(err, unix.EAGAIN):
		// A lease of the container's (fcntl, F_SETLEASE): the kernel has begun to
		// take it away, which takes 45 s (fs.lease-break-time).
		if w.leased[file] = true; !held {
			w.log.Info("A container has a lease on a file of its pod, which cannot be kept small meanwhile", "file", file)
		}
	case busy:
		// The kernel lets nobody open a file for writing whose program runs, and tells
		// nothing when it has ended.
		if w.leased[file] = true; was > limit && !w.told[file] {
			w.told[file] = true
			w.log.Info("A container runs a file of its pod that is larger than may stay; it is cut when that has ended", "file", file, "bytes", was, "limit", limit)
		}
	case err != nil:
		w.log.Error(err, "A pod's file is not kept small", "file", file)
	case was > limit && !w.told[file]:
		w.told[file] = true
		w.log.Info("A container has written more into a file of its pod than may stay; it is cut, and will be again", "file", file, "bytes", was, "limit", limit)
	}
}

// kernel is the Watcher of a real node.
type kernel struct{ *fsnotify.Watcher }

func (k kernel) Told() (<-chan fsnotify.Event, <-chan error) { return k.Events, k.Errors }

func inotify() (Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return kernel{w}, nil
}
