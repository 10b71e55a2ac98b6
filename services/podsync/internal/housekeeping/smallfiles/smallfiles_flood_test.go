package smallfiles

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// told is a kernel that tells what a test has it tell.
type told struct {
	events chan fsnotify.Event
	errs   chan error

	mu      sync.Mutex
	watched map[string]bool
	added   int
}

func newTold() *told {
	return &told{events: make(chan fsnotify.Event), errs: make(chan error), watched: map[string]bool{}}
}

func (k *told) Add(file string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched[file], k.added = true, k.added+1
	return nil
}

func (k *told) Remove(file string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, file)
	return nil
}

func (k *told) Close() error { return nil }

// seen says whether a file is watched now, and how often one was to be.
func (k *told) seen(file string) (watched bool, added int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.watched[file], k.added
}

func (k *told) Told() (<-chan fsnotify.Event, <-chan error) { return k.events, k.errs }

// TestWhoChangesAFilesTimesAllTheTimeIsHeardTenTimesASecond: touching a file needs no more
// than the right to write to it, and costs a container less than it costs to hear of it.
func TestWhoChangesAFilesTimesAllTheTimeIsHeardTenTimesASecond(t *testing.T) {
	pods := t.TempDir()
	file := hostsOf(t, pods, "p", "127.0.0.1 localhost\n")
	for name, op := range map[string]fsnotify.Op{"written": fsnotify.Write, "touched": fsnotify.Chmod} {
		synctest.Test(t, func(t *testing.T) {
			k := newTold()
			g := New(pods, Deps{NewWatcher: func() (Watcher, error) { return k, nil }})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- g.Run(ctx) }()
			synctest.Wait()
			const seconds = 3
			heard := 0
			for range seconds * 1000 {
				if watched, _ := k.seen(file); watched {
					k.events <- fsnotify.Event{Name: file, Op: op}
					heard++
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			if _, added := k.seen(file); heard < seconds || heard > seconds*11 || added < heard {
				t.Errorf("%s: heard of %d times in %d s, and watched again %d times", name, heard, seconds, added-1)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestThatEventsWereLostIsSaidOnceInAWhile: which of them are lost depends on containers.
func TestThatEventsWereLostIsSaidOnceInAWhile(t *testing.T) {
	pods := t.TempDir()
	file := hostsOf(t, pods, "p", "127.0.0.1 localhost\n")
	synctest.Test(t, func(t *testing.T) {
		k := newTold()
		var lines atomic.Int32
		log := funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})
		g := New(pods, Deps{NewWatcher: func() (Watcher, error) { return k, nil }})
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		_, before := k.seen(file)
		for range 100 {
			k.errs <- errors.New("overflow")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if watched, added := k.seen(file); lines.Load() != 2 || added != before+100 || !watched {
			t.Errorf("%d lines in 100 s, the file looked at %d times", lines.Load(), added-before)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
