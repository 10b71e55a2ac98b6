package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFileThatWasRemovedAndIsOpenIsFoundWithWhatLiesInIt(t *testing.T) {
	dir := t.TempDir()
	for name, removed := range map[string]bool{"kept": false, "gone": true, "kept (deleted)": false} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if removed {
			if err := os.Remove(f.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	device, err := DeviceOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := DeviceOf("/")
	if err != nil {
		t.Fatal(err)
	}
	var found []Unlinked
	all := Proc("/proc").Unlinked(t.Context(), os.Getpid(), func(u Unlinked) {
		if filepath.Dir(u.Path) == dir {
			found = append(found, u)
		}
	})
	if !all || len(found) != 1 || found[0].Path != filepath.Join(dir, "gone") || found[0].Bytes < 1<<20 || found[0].Inode.Device != device || found[0].Root != (root == device && overlaid("/proc/self/mountinfo")) {
		t.Errorf("%v, %+v", all, found)
	}
}

// ofThisProcess are those that lie on a device.
func ofThisProcess(t *testing.T, on Device) (found []Unlinked) {
	t.Helper()
	if !Proc("/proc").Unlinked(t.Context(), os.Getpid(), func(u Unlinked) {
		if u.Inode.Device == on {
			found = append(found, u)
		}
	}) {
		t.Error("not all was looked at")
	}
	return found
}

// Else it was enough to lay a file down deep to hide it.
func TestAFileIsFoundThatLiesDeeperThanANameMayBeLong(t *testing.T) {
	dir := t.TempDir()
	device, err := DeviceOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := len(ofThisProcess(t, device))
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 250)
	for range 20 {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		below, err := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = below
	}
	defer unix.Close(at) //nolint:errcheck // It is of no use then.
	file, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file) //nolint:errcheck // As above.
	if err := unix.Unlinkat(at, "file", 0); err != nil {
		t.Fatal(err)
	}
	found := ofThisProcess(t, device)
	if len(found) != before+1 || found[len(found)-1].Path != "/..." || !found[len(found)-1].Writable {
		t.Errorf("%+v", found)
	}
}

func TestWhatIsNoPlainFileIsFoundTooWithTheMountItIsOn(t *testing.T) {
	dir := t.TempDir()
	device, err := DeviceOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := len(ofThisProcess(t, device))
	pipe, below := filepath.Join(dir, "pipe"), filepath.Join(dir, "below")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Mkdir(below, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, below} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd) //nolint:errcheck // It is of no use then.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	found := ofThisProcess(t, device)
	if len(found) != before+2 {
		t.Fatalf("%+v", found)
	}
	for _, u := range found[before:] {
		if _, seen := seenBy("/proc", os.Getpid(), 1<<20)[u.Mount]; !seen {
			t.Errorf("%+v lies on a mount that this process does not see", u)
		}
	}
}

func TestAProgramThatWasRemovedAndRunsIsFound(t *testing.T) {
	dir := t.TempDir()
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, program, 0o700); err != nil { //nolint:gosec // It is run.
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) }()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var found []Unlinked
	Proc("/proc").Unlinked(t.Context(), cmd.Process.Pid, func(u Unlinked) { found = append(found, u) })
	if len(found) != 1 || found[0].Path != path || found[0].Bytes == 0 || found[0].Writable {
		t.Errorf("%+v", found)
	}
}

func TestWhoIsOutOfTimeSaysThatNotAllWasLookedAt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Proc("/proc").Unlinked(ctx, os.Getpid(), func(Unlinked) {}) {
		t.Error("all was looked at")
	}
}

func TestWhetherAnOpenFileMayBeWrittenIsSeen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for flags, want := range map[int]bool{os.O_RDONLY: false, os.O_WRONLY: true, os.O_RDWR: true} {
		f, err := os.OpenFile(name, flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if got := writable(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); got != want {
			t.Errorf("opened with %d: %v", flags, got)
		}
		_ = f.Close()
	}
	if writable("/proc/self/fd/999999") {
		t.Error("of none")
	}
}
