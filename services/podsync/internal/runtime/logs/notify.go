package logs

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// inotify is the Notifier of a real node. All followed logs share one instance
// of inotify: the kernel bounds how many a user has, and root's are shared with
// every container that runs as root.
type inotify struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher // nil while nobody follows
	dirs    map[string]map[*listener]bool
}

// listener is one Notify.
type listener struct {
	changed func()
	lost    chan struct{} // closed when the watcher has ended
}

// Notify implements Notifier.
func (n *inotify) Notify(ctx context.Context, dir string, changed func()) error {
	dir = filepath.Clean(dir)
	l := &listener{changed: changed, lost: make(chan struct{})}
	if err := n.add(dir, l); err != nil {
		return err
	}
	defer n.remove(dir, l)
	changed() // what came between opening the file and this
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.lost:
		return fsnotify.ErrClosed
	}
}

func (n *inotify) add(dir string, l *listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		n.watcher, n.dirs = w, map[string]map[*listener]bool{}
		go n.pass(w)
	}
	if n.dirs[dir] == nil {
		if err := n.watcher.Add(dir); err != nil {
			n.closeUnusedLocked()
			return err
		}
		n.dirs[dir] = map[*listener]bool{}
	}
	n.dirs[dir][l] = true
	return nil
}

func (n *inotify) remove(dir string, l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dirs[dir], l)
	if n.watcher == nil || len(n.dirs[dir]) > 0 {
		return
	}
	delete(n.dirs, dir)
	_ = n.watcher.Remove(dir) // it may be gone
	n.closeUnusedLocked()
}

// closeUnusedLocked ends the watcher when nobody follows.
func (n *inotify) closeUnusedLocked() {
	if len(n.dirs) == 0 {
		_ = n.watcher.Close() // nothing is written through it
		n.watcher = nil
	}
}

// pass hands w's events to who follows, until w is closed.
func (n *inotify) pass(w *fsnotify.Watcher) {
	for {
		select {
		case event, ok := <-w.Events:
			if !ok {
				return
			}
			n.tell(filepath.Dir(event.Name))
			if event.Has(fsnotify.Remove) {
				n.lose(event.Name)
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			n.tellAll() // some events were lost
		}
	}
}

func (n *inotify) tell(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.dirs[dir] {
		l.changed()
	}
}

func (n *inotify) tellAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, listeners := range n.dirs {
		for l := range listeners {
			l.changed()
		}
	}
}

// lose ends the notifications of a directory that was removed, with which its
// watch went: one of the same name would need a new one.
func (n *inotify) lose(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.dirs[dir] {
		close(l.lost)
	}
	delete(n.dirs, dir)
}
