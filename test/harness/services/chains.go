package services

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/polylet/polylet/test/harness/workspace"
)

// chains is a link to the kube-proxy whose chains may be on the machine. It is
// made before that starts and removed after its chains are, so that a test that
// was killed leaves word of them.
func chains() string { return filepath.Join(workspace.Cache(), "kube-proxy-chains") }

// Clean removes the chains that the kube-proxy of a killed test has left. It does
// nothing when there are none, or when a test's kube-proxy runs.
func Clean() error {
	if _, err := os.Lstat(chains()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	release, err := lock()
	if err != nil {
		return err
	}
	defer release()
	return cleanup()
}

// mark notes that the program's chains may be on the machine from now on. What an
// earlier one has left is removed first. The caller holds the lock.
func mark(program string) error {
	if err := cleanup(); err != nil {
		return err
	}
	if err := os.MkdirAll(workspace.Cache(), 0o755); err != nil {
		return fmt.Errorf("note that kube-proxy will make chains: %w", err)
	}
	if err := os.Symlink(program, chains()); err != nil {
		return fmt.Errorf("note that kube-proxy will make chains: %w", err)
	}
	return nil
}

// cleanup has the marked kube-proxy remove its chains. The caller holds the lock.
func cleanup() error {
	program, err := os.Readlink(chains())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find out whose chains are left: %w", err)
	}
	if out, err := exec.Command(program, "--cleanup").CombinedOutput(); err != nil {
		return fmt.Errorf("remove kube-proxy's chains (%s --cleanup; `make peers` builds it): %w: %s", program, err, out)
	}
	if err := os.Remove(chains()); err != nil {
		return fmt.Errorf("note that kube-proxy's chains are gone: %w", err)
	}
	return nil
}
