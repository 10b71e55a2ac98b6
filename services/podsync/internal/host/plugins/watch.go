package plugins

import (
	"context"
	"fmt"

	"github.com/fsnotify/fsnotify"
)

// watch tells of changes in directories.
type watch struct {
	watcher *fsnotify.Watcher // nil when the kernel gives none
	dirs    map[string]bool
	root    string
}

func newWatch(root string) (*watch, error) {
	w := &watch{dirs: map[string]bool{}, root: root}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return w, fmt.Errorf("watch %s: %w; raise fs.inotify.max_user_instances if it says too many open files", root, err)
	}
	w.watcher = watcher
	return w, nil
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing is written through it
	}
}

// add watches the directories that are not watched yet, and says whether there were
// such. The root must be watched; one below it may be gone by now.
func (w *watch) add(dirs []string) (fresh bool, err error) {
	if w.watcher == nil {
		return false, nil
	}
	for _, dir := range dirs {
		if w.dirs[dir] {
			continue
		}
		if err := w.watcher.Add(dir); err != nil {
			if dir != w.root {
				continue
			}
			return false, fmt.Errorf("watch %s: %w; raise fs.inotify.max_user_watches if it says no space left", dir, err)
		}
		w.dirs[dir], fresh = true, true
	}
	return fresh, nil
}

// wait returns when something has changed, with all that has changed meanwhile. anew:
// one of the directories is gone, or the watch is.
func (w *watch) wait(ctx context.Context) (anew bool) {
	select {
	case <-ctx.Done():
		return true
	case event, ok := <-w.watcher.Events:
		anew = !ok || w.ended(event)
	case _, ok := <-w.watcher.Errors:
		anew = !ok // else events were lost: another look finds what they were of
	}
	for !anew {
		select {
		case event, ok := <-w.watcher.Events:
			anew = !ok || w.ended(event)
		case _, ok := <-w.watcher.Errors:
			anew = !ok
		default:
			return false
		}
	}
	return anew
}

// ended says whether an event is of a directory that is gone.
func (w *watch) ended(event fsnotify.Event) bool {
	return w.dirs[event.Name] && event.Has(fsnotify.Remove|fsnotify.Rename)
}
