package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/inotify"
)

const (
	// watchAgain is when everything is looked at again: the kernel does not tell of
	// what is mounted, nor of what a link's link leads to.
	watchAgain = time.Minute
	// watcherAgain is after how long another watcher takes the place of one that failed.
	watcherAgain = time.Second
	// looks bounds how often the way to the directories is looked at anew when it
	// changes meanwhile.
	looks = 10
)

// directories watches directories by inotify, whatever becomes of them: the names of what
// leads to them are watched too, so that one that is moved away, removed or not yet made
// is watched as soon as it is there. The kernel says nothing of what is mounted on
// one; look finds that. For use by one goroutine.
type directories struct {
	log     klog.Logger
	wanted  map[string][]string // the names that matter in each; none: all
	watcher *inotify.Watcher    // nil until inotify can be used
	way     way                 // what is watched
	again   *time.Timer         // when to look at everything, whatever is told
	gone    map[string]bool
	failing bool
}

func newDirectories(log klog.Logger) *directories {
	d := &directories{log: log, wanted: map[string][]string{}, again: time.NewTimer(watchAgain), gone: map[string]bool{}}
	d.again.Stop()
	return d
}

func (d *directories) close() {
	d.again.Stop()
	if d.watcher != nil {
		_ = d.watcher.Close()
	}
}

// want adds a directory of which these names matter, or all, beside those of it that
// do already. look watches it.
func (d *directories) want(dir string, names ...string) {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	have, there := d.wanted[dir]
	if len(names) == 0 || there && len(have) == 0 {
		d.wanted[dir] = nil
		return
	}
	for _, name := range names {
		if !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	d.wanted[dir] = have
}

// events are to be given to saw.
func (d *directories) events() <-chan inotify.Event {
	if d.watcher == nil {
		return nil
	}
	return d.watcher.Events()
}

// errors say that events may be lost; lost is to be called then.
func (d *directories) errors() <-chan error {
	if d.watcher == nil {
		return nil
	}
	return d.watcher.Errors()
}

// saw says whether an event is about what is wanted.
func (d *directories) saw(event inotify.Event) bool {
	name := filepath.Clean(event.Path)
	if _, watched := d.way.places[name]; (watched || d.way.steps[name]) && event.Another {
		// Another directory of this name may have the same inode.
		d.forget(name)
		d.look()
		return true
	}
	return d.way.places[filepath.Dir(name)].matters(filepath.Base(name))
}

// lost watches everything anew. A watcher that could not read what the kernel says has
// ended, and another takes its place in a moment.
func (d *directories) lost(err error) {
	d.log.Error(err, "Changes of files may be lost; all directories are looked at anew")
	if !errors.Is(err, inotify.ErrLost) {
		_ = d.watcher.Close()
		d.watcher, d.way.places = nil, nil
		d.again.Reset(watcherAgain)
		return
	}
	d.forget("/")
	d.look()
}

func (d *directories) forget(dir string) {
	for path := range d.way.places {
		if path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			d.unwatch(path)
		}
	}
}

func (d *directories) unwatch(path string) {
	d.watcher.Remove(path)
	delete(d.way.places, path)
}

// look watches what now leads to the directories, and has itself called again in
// a while, by again.
func (d *directories) look() {
	d.again.Reset(watchAgain)
	var err error
	if d.watcher == nil {
		if d.watcher, err = inotify.New(); err != nil {
			d.watcher, err = nil, fmt.Errorf("use inotify: %w", err)
		}
	}
	for range looks {
		now := wayTo(d.wanted)
		if d.watcher == nil {
			d.way.gone = now.gone
			break
		}
		var settled bool
		if settled, err = d.follow(now); settled || err != nil {
			break
		}
	}
	d.tell(err)
}

// follow watches a way instead of the last one. It has settled when there was
// nothing to do: what changes from then on is told.
func (d *directories) follow(now way) (settled bool, err error) {
	settled = true
	for path := range d.way.places {
		if _, still := now.places[path]; !still {
			d.unwatch(path)
		}
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(now.places)) {
		was, watched := d.way.places[path]
		if is := now.places[path]; watched && os.SameFile(was.info, is.info) && was.wanted() == is.wanted() {
			continue
		}
		settled = false
		d.watcher.Remove(path)
		if err := d.watcher.Add(path, now.places[path].wanted()); err != nil {
			delete(now.places, path)
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("watch %s: %w", path, err))
			}
		}
	}
	d.way = now
	return settled, errors.Join(errs...)
}

// tell logs what has changed.
func (d *directories) tell(err error) {
	for dir := range d.wanted {
		switch gone := d.way.gone[dir]; {
		case gone && !d.gone[dir]:
			d.log.Info("A directory is not there; what was copied from it stays until it comes", "directory", dir)
		case !gone && d.gone[dir]:
			d.log.Info("A directory is there now", "directory", dir)
		}
	}
	d.gone = maps.Clone(d.way.gone)
	switch {
	case err != nil && !d.failing:
		d.log.Error(err, "Not all directories can be watched: until they can, what changes there is seen within a minute; "+
			"raise fs.inotify.max_user_instances or fs.inotify.max_user_watches if a limit is reached", "directories", slices.Sorted(maps.Keys(d.wanted)))
	case err == nil && d.failing:
		d.log.Info("All directories can be watched again")
	}
	d.failing = err != nil
}
