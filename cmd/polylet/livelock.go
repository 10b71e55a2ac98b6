package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
)

// ownerLock is the file whose lock the owner of a directory of configurations holds.
const ownerLock = "owner.lock"

// ownKept makes this process the only owner of a directory of configurations until
// release is called. killed: the one before has not released it, in this run of the machine.
func ownKept(dir string, log klog.Logger) (killed bool, release func(), err error) {
	file, err := lockKept(dir, log)
	if file == nil || err != nil {
		return false, func() {}, err
	}
	return holdKept(file, log), func() { releaseKept(file) }, nil
}

// lockKept locks a directory of configurations: two owners, with different --services say,
// would each judge the other's changes and take them back. One that was killed is gone at
// once; one that ends is waited for. No file: there is no keeping others out.
func lockKept(dir string, log klog.Logger) (*os.File, error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o750), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, nil //nolint:nilerr,nilnil // The controller says that nothing can be kept.
	}
	file, err := os.OpenFile(filepath.Join(dir, ownerLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		log.Error(err, "Nobody can be kept from owning the configuration as well", "directory", dir)
		return nil, nil //nolint:nilnil // As said above.
	}
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 500 * time.Millisecond})
	for deadline := time.Now().Add(takeOver); ; time.Sleep(retry.Next()) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if time.Now().After(deadline) {
			_ = file.Close()
			return nil, fmt.Errorf("another polylet owns the configuration in %s: stop that one, give this one another --root-dir, or start it with --live-config=false: %w", dir, err)
		}
	}
}

// releaseKept says that its owner has ended in order; nil is none.
func releaseKept(file *os.File) {
	if file == nil {
		return
	}
	_ = file.Truncate(0) // else the next start is taken for one after a kill
	_ = file.Close()
}

// holdKept writes into the lock's file which run of the machine it is held in, until it is
// released.
func holdKept(file *os.File, log klog.Logger) (killed bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		log.Error(err, "Whether an owner of the configuration was killed will not be known")
	}
	before := make([]byte, len(boot))
	n, _ := file.ReadAt(before, 0) // an empty one has been released
	killed = err == nil && n == len(boot) && string(before) == string(boot)
	if _, err := file.WriteAt(boot, 0); err != nil {
		log.Error(err, "Whether this owner of the configuration was killed will not be known")
	}
	return killed
}
