package scsi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// answers does calls here, but for devices that somebody holds: all, or one by its name.
type answers struct {
	inner map[string]apart.Call
	held  bool
	of    string
	// whose are the namespaces that it was asked for.
	whose []string
}

func (a *answers) Do(ctx context.Context, _, call string, args ...string) (string, error) {
	a.whose = append(a.whose, apart.Namespace(ctx))
	for _, arg := range args {
		if a.of != "" && filepath.Base(arg) == a.of {
			return arg, nil
		}
	}
	if a.held && call == callRelease {
		return "", os.ErrPermission
	}
	return a.inner[call](args)
}

// after does something after each of some calls.
type after struct {
	*answers
	call string
	do   func(args []string)
}

func (a *after) Do(ctx context.Context, whose, call string, args ...string) (string, error) {
	said, err := a.answers.Do(ctx, whose, call, args...)
	if call == a.call {
		a.do(args)
	}
	return said, err
}

func (a *answers) Follow(context.Context, string, func(string), string, ...string) (string, error) {
	return "{}", nil
}

func TestADiskIsReleasedByTheKernelsFile(t *testing.T) {
	dir := t.TempDir()
	device, file := filepath.Join(dir, "sda"), filepath.Join(dir, "delete")
	for _, name := range []string{device, file} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := releaseCall([]string{device, file}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); string(got) != "1" || err != nil {
		t.Errorf("it says %q, %v", got, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := releaseCall([]string{device, file}); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestADeviceThatSomebodyHoldsIsNotReleased(t *testing.T) {
	held := heldDevice(t)
	got, err := heldCall([]string{"/dev/absent", held})
	if got != held || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	file := filepath.Join(t.TempDir(), "delete")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := releaseCall([]string{held, file}); err == nil || !strings.Contains(err.Error(), "is in use still") {
		t.Error(err)
	}
	if got, _ := os.ReadFile(file); len(got) != 0 {
		t.Error("the kernel is told to forget it")
	}
}

func TestADeviceThatCannotBeLookedAtIsNotReleased(t *testing.T) {
	dir := t.TempDir()
	file, loop := filepath.Join(dir, "delete"), filepath.Join(dir, "loop")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("loop", loop)); err != nil {
		t.Fatal(err)
	}
	if _, err := releaseCall([]string{loop, file}); !errors.Is(err, unix.ELOOP) {
		t.Error(err)
	}
	if _, err := heldCall([]string{loop}); !errors.Is(err, unix.ELOOP) {
		t.Error(err)
	}
	if got, _ := os.ReadFile(file); len(got) != 0 {
		t.Error("the kernel is told to forget it")
	}
}

// heldDevice is a device that is held open as by a mount, until the test's end.
func heldDevice(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("devices need root")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return device
}
