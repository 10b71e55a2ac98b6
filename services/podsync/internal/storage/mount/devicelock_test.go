package mount

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/polylet/polylet/internal/rpcerr"
)

// TestADeviceIsOnesAloneWhateverItIsCalled, and is taken anew when its lock was taken away.
func TestADeviceIsOnesAloneWhateverItIsCalled(t *testing.T) {
	dir := t.TempDir()
	device, link, locks := filepath.Join(dir, "disk"), filepath.Join(dir, "link"), filepath.Join(dir, "locks")
	if err := errors.Join(os.WriteFile(device, nil, 0o600), os.Symlink(device, link)); err != nil {
		t.Fatal(err)
	}
	first, err := lockDevice(locks, device, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDevice(locks, link, 50*time.Millisecond); !errors.Is(err, rpcerr.ErrUnavailable) || !strings.Contains(err.Error(), "still works on "+link) {
		t.Error(err)
	}
	next := make(chan *os.File, 1)
	go func() {
		f, err := lockDevice(locks, link, time.Minute)
		if err != nil {
			t.Error(err)
		}
		next <- f
	}()
	time.Sleep(50 * time.Millisecond) // it waits for the kernel
	if err := errors.Join(os.Remove(first.Name()), first.Close()); err != nil {
		t.Fatal(err)
	}
	second := <-next
	if second == nil || !current(second) {
		t.Fatal("a lock that is gone was taken")
	}
	defer second.Close()
	if _, err := lockDevice(locks, filepath.Join(dir, "none"), time.Minute); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWhatAProgramSaysAndEndsWithIsAsWhoAsksForItKnowsIt(t *testing.T) {
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	run := programs{utilexec.New(), lock}
	out, err := run.Command("sh", "-c", "echo one; echo two >&2; echo held >&3; exit 3").CombinedOutput()
	ended, is := err.(utilexec.ExitError) //nolint:errorlint // As mount-utils asks.
	if !is || ended.ExitStatus() != 3 || string(out) != "one\ntwo\n" {
		t.Errorf("%q, %v", out, err)
	}
	if raw, err := os.ReadFile(lock.Name()); string(raw) != "held\n" || err != nil {
		t.Errorf("the lock is not the program's: %q, %v", raw, err)
	}
	if _, err := run.Command("no-such-program").CombinedOutput(); err != exec.ErrNotFound { //nolint:errorlint // As mount-utils asks.
		t.Error(err)
	}
	if out, err := run.Command("sh", "-c", "head -c 100000 /dev/zero").CombinedOutput(); len(out) != mostSaid || err != nil {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
