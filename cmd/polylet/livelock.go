package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/backoff"
)

// ownerLock is the file whose lock the owner of a directory of configurations holds.
const ownerLock = "owner.lock"

// ownKept makes this process the only owner of a directory of configurations until
// release is called: two of them, with different --services say, would each judge the
// other's changes and take them back. One that was killed is gone at once; one that ends
// is waited for.
func ownKept(dir string) (release func(), err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o750), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("keep configurations: %w: check that the disk is writable, or start with --live-config=false", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, ownerLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep configurations: %w", err)
	}
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 500 * time.Millisecond})
	for deadline := time.Now().Add(takeOver); ; time.Sleep(retry.Next()) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if time.Now().After(deadline) {
			_ = file.Close()
			return nil, fmt.Errorf("another polylet owns the configuration in %s: stop that one, give this one another --root-dir, or start it with --live-config=false: %w", dir, err)
		}
	}
}
