package scsi

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// await looks for something in a directory, which may not be there yet, at each change of
// it, until it is found or a time is over; it says what was found last.
func await(ctx context.Context, dir string, within time.Duration, found func() string) string {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return awaitByClock(ctx, found) // there are too many
	}
	defer func() { _ = watcher.Close() }()
	for {
		watch(watcher, dir)
		if at := found(); at != "" { // also what came before it was watched
			return at
		}
		select {
		case <-watcher.Events:
		case <-watcher.Errors: //nolint:errcheck // What was missed is looked at.
		case <-ctx.Done():
			return found()
		}
	}
}

// watch watches a directory, or as far as there is one on the way to it.
func watch(watcher *fsnotify.Watcher, dir string) {
	for watcher.Add(dir) != nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
}

// awaitByClock is await where nobody can tell.
func awaitByClock(ctx context.Context, found func() string) string {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if at := found(); at != "" {
			return at
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return found()
		}
	}
}
