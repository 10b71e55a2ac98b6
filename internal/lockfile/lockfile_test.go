package lockfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 30 * time.Second

func hold(t *testing.T, cfg Config) (context.Context, func()) {
	t.Helper()
	held, release, err := Hold(t.Context(), cfg, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return held, release
}

func ended(t *testing.T, held context.Context, why string) {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(timeout):
		t.Fatalf("the holder goes on although %s", why)
	}
}

func TestASecondAgentWaitsUntilTheFirstIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.lock")
	_, release := hold(t, Config{Path: path})
	got := make(chan error, 1)
	go func() {
		_, second, err := Hold(t.Context(), Config{Path: path}, logr.Discard())
		if err == nil {
			second()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("a second agent does not wait: %v", err)
	case <-time.After(300 * time.Millisecond): // it waits in the kernel, which keeps no virtual time
	}
	release()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(timeout):
		t.Fatal("a second agent waits for ever")
	}
}

func TestWhoWaitsCanBeStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.lock")
	_, release := hold(t, Config{Path: path})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, _, err := Hold(ctx, Config{Path: path}, logr.Discard()); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	release()
	if _, again := hold(t, Config{Path: path}); again == nil {
		t.Error("who gave up has kept the lock")
	}
}

// TestTheHolderEndsWhenSomebodyWantsTheLock is what the kubelet's own suite does
// to its agent.
func TestTheHolderEndsWhenSomebodyWantsTheLock(t *testing.T) {
	for name, contend := range map[string]func(path string) error{
		"opened":  func(path string) error { f, err := os.Open(path); _ = f.Close(); return err },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.lock")
			held, release := hold(t, Config{Path: path, ExitOnContention: true})
			if held.Err() != nil {
				t.Fatal("ended by its own lock")
			}
			if err := contend(path); err != nil {
				t.Fatal(err)
			}
			ended(t, held, "the file was "+name)
			release()
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Errorf("the lock is not free: %v", err)
			}
		})
	}
}

func TestWithoutTheFlagNobodyEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.lock")
	held, _ := hold(t, Config{Path: path})
	watched, _ := hold(t, Config{Path: path + "2", ExitOnContention: true})
	if err := os.Chmod(path+"2", 0o644); err != nil { // no contention
		t.Error(err)
	}
	if f, err := os.Open(path); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	select {
	case <-held.Done():
		t.Error("the holder ended")
	case <-watched.Done():
		t.Error("the holder ended though nobody opened the file")
	case <-time.After(200 * time.Millisecond): // the kernel keeps no virtual time
	}
}

func TestWithoutAFileThereIsNoLock(t *testing.T) {
	if held, _ := hold(t, Config{}); held != t.Context() && held.Err() != nil {
		t.Error("ended")
	}
	if _, _, err := Hold(t.Context(), Config{ExitOnContention: true}, logr.Discard()); err == nil {
		t.Error("contention of no file was accepted")
	}
	if _, _, err := Hold(t.Context(), Config{Path: filepath.Join(t.TempDir(), "none", "agent.lock")}, logr.Discard()); err == nil {
		t.Error("a lock in a directory that is not there was taken")
	}
}

func TestALockThatIsThereIsHeldOnADiskThatBecameReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	path := filepath.Join(dir, "agent.lock")
	_, release := hold(t, Config{Path: path})
	release()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "size=64k"); err != nil {
		t.Skipf("make the tmpfs read-only: %v", err)
	}
	_, release = hold(t, Config{Path: path})
	defer release()
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := Hold(soon, Config{Path: path}, logr.Discard()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second agent gets %v", err)
	}
	if _, _, err := Hold(t.Context(), Config{Path: filepath.Join(dir, "other.lock")}, logr.Discard()); !errors.Is(err, unix.EROFS) {
		t.Errorf("a lock that is not there gives %v", err)
	}
}
