package disk

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// large are trees that take as long as is said to be walked, and of which all but a
// twentieth is found at once.
type large struct {
	*Trees

	mu    sync.Mutex
	takes map[string]time.Duration
	bytes map[string]uint64
}

// set changes what is in a directory, and how long it takes.
func (l *large) set(path string, takes time.Duration, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes[path], l.bytes[path] = takes, bytes
}

func (l *large) of(path string) (takes time.Duration, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takes[path], l.bytes[path]
}

// inLarge runs test beside them. One walk may take 30 seconds.
func inLarge(t *testing.T, takes map[string]time.Duration, test func(ctx context.Context, l *large)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &large{Trees: NewTrees(TreesConfig{Period: time.Minute, Deadline: 30 * time.Second, Forget: time.Hour}), takes: takes, bytes: map[string]uint64{}}
		l.measureOne = func(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
			takes, bytes := l.of(d.Path)
			m := Measured{Time: time.Now(), Tree: Tree{Bytes: bytes / 20 * 19, Inodes: 1}}
			soFar(m)
			select {
			case <-ctx.Done():
				return m, ctx.Err()
			case <-time.After(takes):
			}
			m.Bytes += bytes / 20
			return m, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = l.Run(ctx) }()
		test(ctx, l)
		cancel()
		<-done
	})
}

// pass asks for the directories each minute, and returns what was known last.
func (l *large) pass(ctx context.Context, d time.Duration, dirs ...Directory) (got map[string]Measured) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Minute) {
		now, cancel := context.WithTimeout(ctx, time.Second)
		got = l.Get(now, dirs)
		cancel()
	}
	return got
}

func TestWhatWasRemovedFromADirectoryThatTakesLongIsNoticed(t *testing.T) {
	for takes, within := range map[time.Duration]time.Duration{40 * time.Second: 5 * time.Minute, 8 * time.Minute: 30 * time.Minute, 24 * time.Hour: 80 * time.Minute} {
		inLarge(t, map[string]time.Duration{"a": takes}, func(ctx context.Context, l *large) {
			l.set("a", takes, 2000)
			if got := l.pass(ctx, 30*time.Minute, Directory{Path: "a"})["a"]; got.Bytes < 1900 || got.Partly != (takes > 3*time.Minute) {
				t.Errorf("takes %v: %+v", takes, got)
			}
			l.set("a", takes, 100)
			if got := l.pass(ctx, within, Directory{Path: "a"})["a"]; got.Bytes > 100 {
				t.Errorf("takes %v: %+v after %v", takes, got, within)
			}
		})
	}
}

// One walk that counts less than another is no sign that anything was removed.
func TestWhatALongWalkHasCountedStaysTheFigureForAnHour(t *testing.T) {
	inLarge(t, map[string]time.Duration{"a": 40 * time.Second}, func(ctx context.Context, l *large) {
		l.set("a", 40*time.Second, 2000)
		if got := l.pass(ctx, 10*time.Minute, Directory{Path: "a"})["a"]; got.Bytes != 2000 || got.Partly {
			t.Errorf("%+v", got)
		}
		l.set("a", time.Hour, 2000)
		if got := l.pass(ctx, 45*time.Minute, Directory{Path: "a"})["a"]; got.Bytes != 2000 || !got.Partly {
			t.Errorf("%+v", got)
		}
		if got := l.pass(ctx, 30*time.Minute, Directory{Path: "a"})["a"]; got.Bytes != 1900 || !got.Partly {
			t.Errorf("%+v", got)
		}
	})
}

// Who makes pods may lay down as many files in as many volumes as he likes.
func TestNoNamespacesLargeDirectoryIsKeptUpByTheManyOfAnother(t *testing.T) {
	takes := map[string]time.Duration{"ours": time.Minute, "small": time.Second}
	dirs := []Directory{{Path: "ours", Namespace: "ours"}, {Path: "small", Namespace: "ours"}}
	for i := range 50 {
		path := fmt.Sprint("theirs", i)
		takes[path] = 24 * time.Hour
		dirs = append(dirs, Directory{Path: path, Namespace: "theirs"})
	}
	inLarge(t, takes, func(ctx context.Context, l *large) {
		l.set("ours", time.Minute, 2000)
		l.set("small", time.Second, 2000)
		l.pass(ctx, 30*time.Minute, dirs...)
		l.set("ours", time.Minute, 100)
		l.set("small", time.Second, 100)
		if got := l.pass(ctx, 5*time.Minute, dirs...)["small"]; got.Bytes != 100 {
			t.Errorf("%+v", got)
		}
		if got := l.pass(ctx, 25*time.Minute, dirs...)["ours"]; got.Bytes != 100 || time.Since(got.Time) > 15*time.Minute {
			t.Errorf("%+v", got)
		}
	})
}

func TestALongWalkTakesATenthOfAProcessor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, before := time.Now(), threadTime()
	rest := paced(ctx)
	for time.Since(began) < 500*time.Millisecond {
		rest()
	}
	if work, all := threadTime()-before, time.Since(began); work > all/4 {
		t.Errorf("%v of %v", work, all)
	}
}
