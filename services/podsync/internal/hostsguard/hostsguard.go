// Package hostsguard keeps small what containers write into the hosts file of
// their pod. The file lies on the node's own disk, and root in a container may
// write to it as it likes: without a bound it fills that disk (CVE-2020-8557).
//
// It must never write to a file, only cut it, and never look at one that nobody
// has written to.
package hostsguard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

const (
	// Limit is how many bytes of a hosts file stay. What podsync writes into one
	// comes from a pod's object, which cannot be larger.
	Limit = 2 << 20
	// restFor is how long a file that was written to is not looked at again: a
	// container that writes all the time costs ten looks a second, no more.
	restFor = 100 * time.Millisecond
)

// Guard watches hosts files. Watch is safe for concurrent use; Run runs once.
type Guard struct {
	podsDir string
	asked   chan struct{} // wakes Run

	mu    sync.Mutex
	files []string // to be watched
}

// New returns a Guard of the pods below podsDir, the root directory's pods/.
func New(podsDir string) *Guard {
	return &Guard{podsDir: podsDir, asked: make(chan struct{}, 1)}
}

// Watch has a pod's hosts file watched until it is removed. It never waits, and
// may be called again for the same file.
func (g *Guard) Watch(file string) {
	g.mu.Lock()
	g.files = append(g.files, file)
	g.mu.Unlock()
	select {
	case g.asked <- struct{}{}:
	default:
	}
}

func (g *Guard) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	files := g.files
	g.files = nil
	return files
}

// Run watches until ctx is done, the files of pods of earlier lives too. Without
// a watch on a file (the kernel bounds their number) the node works on, and the
// log says what to raise.
func (g *Guard) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the pods' hosts files: %w: raise fs.inotify.max_user_instances", err)
	}
	defer watcher.Close()
	left, err := filepath.Glob(filepath.Join(g.podsDir, "*", "etc-hosts"))
	if err != nil {
		return fmt.Errorf("look for the pods' hosts files: %w", err)
	}
	w := watch{watcher, logr.FromContextOrDiscard(ctx), map[string]bool{}}
	for _, file := range left {
		w.look(file)
	}
	rested := make(chan string)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.asked:
			for _, file := range g.take() {
				w.look(file)
			}
		case file := <-rested:
			w.look(file)
		case event := <-watcher.Events:
			w.saw(event, func(file string) {
				select {
				case rested <- file:
				case <-ctx.Done():
				}
			})
		case err := <-watcher.Errors:
			w.log.Error(err, "Some writes to pods' hosts files were not seen; the next ones will be")
		}
	}
}

// watch belongs to one Run.
type watch struct {
	watcher *fsnotify.Watcher
	log     logr.Logger
	told    map[string]bool // the files whose cut was told
}

// saw leaves a file that was written to alone for a while, and then hands it to
// again. The watch of a file that is removed goes with it.
func (w watch) saw(event fsnotify.Event, again func(file string)) {
	switch {
	case event.Has(fsnotify.Remove):
		delete(w.told, event.Name)
	case event.Has(fsnotify.Write):
		_ = w.watcher.Remove(event.Name) // it may be gone
		time.AfterFunc(restFor, func() { again(event.Name) })
	}
}

// look watches the file from now on, and cuts it when it is too large already.
func (w watch) look(file string) {
	err := w.watcher.Add(file)
	if err == nil {
		err = w.cut(file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(w.told, file)
	case err != nil:
		w.log.Error(err, "A pod's hosts file is not kept small; if watches are short, raise fs.inotify.max_user_watches", "file", file)
	}
}

// cut shortens a file to the limit. The name is the node's own, and a container
// has the file itself mounted, so it cannot put another in its place.
func (w watch) cut(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() <= Limit {
		return err
	}
	if !w.told[file] {
		w.told[file] = true
		w.log.Info("A container has written more into its pod's hosts file than may stay; it is cut, and will be again", "file", file, "bytes", info.Size(), "limit", Limit)
	}
	return f.Truncate(Limit)
}

// Off watches nothing: for tests on virtual time, which the kernel does not keep.
type Off struct{}

// Watch does nothing.
func (Off) Watch(string) {}

// Run waits for ctx.
func (Off) Run(ctx context.Context) error { <-ctx.Done(); return nil }
