package main

import (
	"context"
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

// bootIDFile says which run of the machine this is.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// ownKept makes this process the only owner of a directory of configurations until
// release is called: two of them, with different --services say, would each judge the
// other's changes and take them back. One that was killed is gone at once; one that ends
// is waited for. killed: the one before was neither asked to end nor has it released it, in
// this run of the machine, which bootID is a file of; empty: that is not asked. Who is
// asked to end, which ctx tells, may be ended before all that it has begun has ended.
func ownKept(ctx context.Context, dir, bootID string, log klog.Logger) (killed bool, release func(), err error) {
	return ownKeptBy(ctx, unix.Flock, dir, bootID, log)
}

// ownKeptBy is ownKept with a way to lock a file.
func ownKeptBy(ctx context.Context, flock func(fd, how int) error, dir, bootID string, log klog.Logger) (killed bool, release func(), err error) {
	if err = errors.Join(os.MkdirAll(filepath.Dir(dir), 0o750), os.MkdirAll(dir, 0o700)); err != nil {
		return false, func() {}, nil // the controller says that nothing can be kept
	}
	file, err := os.OpenFile(filepath.Join(dir, ownerLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		log.Error(err, "Nobody can be kept from owning the configuration as well", "directory", dir)
		return false, func() {}, nil
	}
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 500 * time.Millisecond})
	for deadline := time.Now().Add(takeOver); ; time.Sleep(retry.Next()) {
		err := flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			killed, release = holdKept(ctx, file, bootID, log)
			return killed, release, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) { // a file system without locks, say
			log.Error(err, "Nobody can be kept from owning the configuration as well", "directory", dir)
			_ = file.Close()
			return false, func() {}, nil
		}
		if time.Now().After(deadline) {
			_ = file.Close()
			return false, nil, fmt.Errorf("another polylet owns the configuration in %s: stop that one, give this one another --root-dir, or start it with --live-config=false: %w", dir, err)
		}
	}
}

// holdKept writes into the lock's file which run of the machine it is held in, until its
// owner is asked to end.
func holdKept(ctx context.Context, file *os.File, bootID string, log klog.Logger) (killed bool, release func()) {
	var boot []byte
	var err error
	if bootID != "" {
		boot, err = os.ReadFile(bootID)
	}
	if err != nil {
		log.Error(err, "Whether an owner of the configuration was killed will not be known")
	}
	before := make([]byte, len(boot))
	n, _ := file.ReadAt(before, 0) // an empty one has been released
	killed = len(boot) > 0 && err == nil && n == len(boot) && string(before) == string(boot)
	if _, err := file.WriteAt(boot, 0); err != nil {
		log.Error(err, "Whether this owner of the configuration was killed will not be known")
	}
	asked := func() { _ = file.Truncate(0) } // else the next start is taken for one after a kill
	stop := context.AfterFunc(ctx, asked)
	return killed, func() {
		stop()
		asked()
		_ = file.Close()
	}
}
