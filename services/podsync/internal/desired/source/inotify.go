package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Inotify is the Notifier of a real node.
type Inotify struct{}

// Notify implements Notifier. While path does not exist, its nearest parent
// that does is watched.
func (i Inotify) Notify(ctx context.Context, path string, changed func()) error {
	return i.NotifyRemoved(ctx, path, changed, func(string) {})
}

// NotifyRemoved implements RemovalNotifier.
func (Inotify) NotifyRemoved(ctx context.Context, path string, changed func(), removed func(file string)) error {
	for ctx.Err() == nil {
		if err := watchOnce(ctx, filepath.Clean(path), changed, removed); err != nil {
			return err
		}
	}
	return nil
}

// watchOnce watches one directory until it is no longer the nearest to path.
func watchOnce(ctx context.Context, path string, changed func(), removed func(file string)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w; raise fs.inotify.max_user_instances if it says too many open files", path, err)
	}
	defer watcher.Close()
	dir := nearestDirectory(path)
	if err := watcher.Add(dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("watch %s: %w; raise fs.inotify.max_user_watches if it says no space left", dir, err)
	}
	if nearestDirectory(path) != dir {
		return nil
	}
	changed() // what came before the watch stood
	for {
		select {
		case <-ctx.Done():
			return nil
		case err, ok := <-watcher.Errors:
			if !ok {
				return nil
			}
			return fmt.Errorf("watch %s: %w", dir, err)
		case event, ok := <-watcher.Events:
			if !ok {
				return nil
			}
			if concerns(event.Name, dir, path) {
				if event.Has(fsnotify.Remove | fsnotify.Rename) {
					removed(event.Name)
				}
				changed()
			}
			if nearestDirectory(path) != dir || event.Name == dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return nil
			}
		}
	}
}

// concerns says whether an event in dir is about path or a visible file in it.
func concerns(name, dir, path string) bool {
	switch {
	case dir == path:
		// ..data is the link behind the files of a config map's volume.
		base := filepath.Base(name)
		return !strings.HasPrefix(base, ".") || base == "..data"
	default:
		return name == path || strings.HasPrefix(path, name+string(filepath.Separator))
	}
}

func nearestDirectory(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
	}
}
