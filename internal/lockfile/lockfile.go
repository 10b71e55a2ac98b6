// Package lockfile keeps two agents on one node apart: --lock-file and
// --exit-on-lock-contention. The lock is the kernel's (flock), the same that a
// kubelet takes, and goes with the process. The package never writes to the file
// and never removes it.
package lockfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// Config of a lock.
type Config struct {
	// Path of the file, made when it is not there; no lock when empty.
	Path string
	// ExitOnContention ends the holder when somebody else opens the file or
	// removes it.
	ExitOnContention bool
	// Waiting, unless nil, is called once when another holds the lock.
	Waiting func()
}

// Hold waits for the lock and holds it until release is called. The context that
// it returns ends with ctx, and on contention; a holder ends with it. The error
// is ctx's when that ends first.
func Hold(ctx context.Context, cfg Config, log logr.Logger) (held context.Context, release func(), err error) {
	if cfg.Path == "" {
		if cfg.ExitOnContention {
			return nil, nil, errors.New("cannot exit on lock file contention: no lock file specified: give --lock-file")
		}
		return ctx, func() {}, nil
	}
	file, err := open(cfg.Path)
	if err != nil {
		return nil, nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := acquire(ctx, file, cfg.Waiting, log); err != nil {
		return nil, nil, fmt.Errorf("unable to acquire file lock on %q: %w", cfg.Path, err)
	}
	held, cancel := context.WithCancel(ctx)
	stop := func() {}
	if cfg.ExitOnContention {
		if stop, err = onContention(file, func() {
			log.Info("Somebody else wants the lock file: this agent ends", "path", cfg.Path)
			cancel()
		}); err != nil {
			cancel()
			_ = file.Close()
			return nil, nil, fmt.Errorf("watch lock file %s: %w", cfg.Path, err)
		}
	}
	return held, func() { cancel(); stop(); _ = file.Close() }, nil
}

// open opens the lock file, and makes it when it is not there. On a disk that
// became read-only one that is there is as good: the lock needs no right to write.
func open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if !errors.Is(err, unix.EROFS) {
		return file, err
	}
	if held, readErr := os.Open(path); readErr == nil {
		return held, nil
	}
	return nil, err
}

// acquire closes file when it fails.
func acquire(ctx context.Context, file *os.File, waiting func(), log logr.Logger) error {
	fd := int(file.Fd()) // a blocking descriptor from now on
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return closed(file, err)
	}
	log.Info("Another agent holds the lock file: this one waits for it", "path", file.Name())
	if waiting != nil {
		waiting()
	}
	got := make(chan error, 1)
	go func() {
		err := unix.Flock(fd, unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
		got <- closed(file, err)
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		go func() { // the kernel's wait cannot be called off
			if err := <-got; err == nil {
				_ = file.Close() // nobody wants it any more
			}
		}()
		return ctx.Err()
	}
}

func closed(file *os.File, err error) error {
	if err != nil {
		_ = file.Close()
	}
	return err
}

// onContention calls seen once, when somebody opens the file or removes it.
func onContention(file *os.File, seen func()) (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("%w: raise fs.inotify.max_user_instances", err)
	}
	events := os.NewFile(uintptr(fd), "inotify") //nolint:gosec // A descriptor is not negative.
	if _, err := unix.InotifyAddWatch(fd, file.Name(), unix.IN_OPEN|unix.IN_ATTRIB); err != nil {
		_ = events.Close()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		event := make([]byte, 64*unix.SizeofInotifyEvent)
		for {
			n, err := events.Read(event)
			if err != nil {
				return
			}
			// Events of a file have no name behind them, so all are of one size. A
			// file that is open is not deleted; it only has no name any more.
			for at := 0; at+unix.SizeofInotifyEvent <= n; at += unix.SizeofInotifyEvent {
				if binary.NativeEndian.Uint32(event[at+4:])&unix.IN_OPEN != 0 || unlinked(file) {
					seen()
					return
				}
			}
		}
	}()
	return func() { _ = events.Close(); <-done }, nil
}

func unlinked(file *os.File) bool {
	info, err := file.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}
