package logs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// instances counts this process's instances of inotify.
func instances(t *testing.T) int {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.Contains(target, "inotify") {
			n++
		}
	}
	return n
}

// following is one Notify that runs.
type following struct {
	told  chan struct{}
	ended chan error
	stop  context.CancelFunc
}

func follow(t *testing.T, n *inotify, dir string) following {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	f := following{told: make(chan struct{}, 1), ended: make(chan error, 1), stop: stop}
	go func() {
		f.ended <- n.Notify(ctx, dir, func() {
			select {
			case f.told <- struct{}{}:
			default:
			}
		})
	}()
	f.wait(t, "that it watches")
	return f
}

func (f following) wait(t *testing.T, what string) {
	t.Helper()
	select {
	case <-f.told:
	case err := <-f.ended:
		t.Fatalf("it ended with %v before it told %s", err, what)
	case <-time.After(30 * time.Second):
		t.Fatalf("nobody told %s", what)
	}
}

func TestAllFollowedLogsShareOneInstanceOfInotify(t *testing.T) {
	n, before := &inotify{}, instances(t)
	var all []following
	var dirs []string
	for i := range 20 {
		dir := t.TempDir()
		if i%2 == 1 {
			dir = dirs[i-1] // two read the same log
		}
		dirs = append(dirs, dir)
		all = append(all, follow(t, n, dir))
	}
	if got := instances(t) - before; got != 1 {
		t.Errorf("%d instances for %d logs; want one", got, len(all))
	}
	for i, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		all[i].wait(t, "of a write")
	}
	all[0].stop()
	if err := <-all[0].ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	for drained := false; !drained; {
		select {
		case <-all[1].told:
		default:
			drained = true
		}
	}
	if err := os.WriteFile(filepath.Join(dirs[1], "more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	all[1].wait(t, "of a write after another reader of the log went")
	for _, f := range all[1:] {
		f.stop()
		<-f.ended
	}
	if got := instances(t) - before; got != 0 {
		t.Errorf("%d instances are left when nobody follows", got)
	}
}

func TestFollowingEndsWithTheDirectoryAndMayBeginAnew(t *testing.T) {
	n := &inotify{}
	dir := filepath.Join(t.TempDir(), "c")
	for range 2 {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f := follow(t, n, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-f.ended:
			if err == nil {
				t.Error("ended without an error")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it goes on without a watch")
		}
	}
	if err := n.Notify(t.Context(), dir, func() {}); err == nil {
		t.Error("a directory that is not there is watched")
	}
}
