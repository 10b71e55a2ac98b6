package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// TestMain is also the program that does Calls.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == apart.Flag {
		os.Exit(apart.Main(os.Args[1:], Calls(), os.Stdout))
	}
	os.Exit(m.Run())
}

func TestAMountOfAServerEndsAsAnyOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	k, dir := New(Config{}), t.TempDir()
	if err := k.Tmpfs(dir, 1<<20); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	for _, d := range []string{dir, dir, filepath.Join(dir, "absent")} {
		if err := k.UnmountRemote(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	if mounted, err := k.Mounted(dir); err != nil || mounted {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
	if err := k.Tmpfs(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if _, err := detachCall([]string{dir}); err != nil {
		t.Error(err)
	}
	if mounted, err := k.Mounted(dir); err != nil || mounted {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
}

// servers stands in for processes: unmounting hangs until its time is over, and detaching
// does what it is told.
type servers struct {
	mu     sync.Mutex
	asked  []string
	after  []time.Duration // since the beginning, of each
	began  time.Time
	detach func(ctx context.Context) error
	umount func(ctx context.Context) error
}

func (s *servers) Do(ctx context.Context, _, call string, args ...string) (string, error) {
	s.mu.Lock()
	s.asked, s.after = append(s.asked, call+" "+strings.Join(args, " ")), append(s.after, time.Since(s.began))
	s.mu.Unlock()
	if call == callDetach {
		return "", s.detach(ctx)
	}
	return "", s.umount(ctx)
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return errors.Join(apart.ErrSilent, context.Cause(ctx))
}

// onAMount has something that nobody ends mounted.
func onAMount(t *testing.T) string {
	t.Helper()
	const always = "/proc"
	if mounted, err := New(Config{}).Mounted(always); err != nil || !mounted {
		t.Skipf("/proc is no mount point: %v", err)
	}
	return always
}

func TestAServerHasAMinuteAndThenItsMountIsDetached(t *testing.T) {
	target := onAMount(t)
	synctest.Test(t, func(t *testing.T) {
		s := &servers{umount: hangs, detach: func(context.Context) error { return nil }, began: time.Now()}
		k := &Kernel{ends: s}
		if err := k.UnmountRemote(t.Context(), target); err != nil {
			t.Error(err)
		}
		if !slices.Equal(s.asked, []string{"unmount " + target, "detach " + target}) || s.after[1] != time.Minute {
			t.Errorf("%q after %v", s.asked, s.after)
		}
	})
}

func TestAMountThatCannotBeDetachedIsSaidAndThePodsEndIsNot(t *testing.T) {
	target := onAMount(t)
	synctest.Test(t, func(t *testing.T) {
		k := &Kernel{ends: &servers{umount: hangs, detach: hangs, began: time.Now()}}
		began := time.Now()
		err := k.UnmountRemote(t.Context(), target)
		if !errors.Is(err, errNoServer) || !errors.Is(err, apart.ErrSilent) || !strings.Contains(err.Error(), "unmount /proc, whose server does not answer") {
			t.Error(err)
		}
		if took := time.Since(began); took != endsWithin+detachesWithin {
			t.Errorf("after %v", took)
		}
	})
}

func TestWhatTheKernelRefusesToUnmountIsNotForced(t *testing.T) {
	target := onAMount(t)
	refused := errors.New("unmount /proc: operation not permitted")
	s := &servers{umount: func(context.Context) error { return refused }}
	if err := (&Kernel{ends: s}).UnmountRemote(t.Context(), target); !errors.Is(err, refused) || len(s.asked) != 1 {
		t.Errorf("%v; asked for %q", err, s.asked)
	}
}

func TestWhoTakesAPodDownIsNotWaitedForAnyLonger(t *testing.T) {
	target := onAMount(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stops := errors.New("podsync ends")
	cancel(stops)
	s := &servers{umount: hangs}
	if err := (&Kernel{ends: s}).UnmountRemote(ctx, target); !errors.Is(err, stops) || len(s.asked) != 1 {
		t.Errorf("%v; asked for %q", err, s.asked)
	}
}

func TestOneFilesystemIsOneHoweverOftenItIsMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	k, a, b := New(Config{}), t.TempDir(), t.TempDir()
	if err := k.Tmpfs(a, 1<<20); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = k.Unmount(a) })
	if err := k.Bind(a, b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Unmount(b) })
	if of, other := Filesystem(a), Filesystem(filepath.Dir(a)); of != Filesystem(b) || of == other {
		t.Errorf("%s, %s, beside %s", of, Filesystem(b), other)
	}
}
