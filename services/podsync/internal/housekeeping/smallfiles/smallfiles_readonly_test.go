package smallfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
)

// On a disk that became read-only no container writes to its files: a line for
// each of them, at each start, would only hide what is the matter.
func TestFilesOnADiskThatBecameReadOnlyAreNoTrouble(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	file := filepath.Join(dir, hostsFile)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "size=64k"); err != nil {
		t.Skipf("make the tmpfs read-only: %v", err)
	}
	log := funcr.New(func(_, args string) { t.Errorf("it is said: %s", args) }, funcr.Options{})
	w := &watch{Guard: New(dir, Deps{}), log: log, told: map[string]bool{}, timed: map[string]bool{}, leased: map[string]bool{}}
	w.look(file)
}
