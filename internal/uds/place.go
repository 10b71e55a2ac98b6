package uds

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A socket's directory may be mounted into pods, so that they can ask there: root in
// one replaces what is in it at any moment. What is looked at is therefore held, and
// what is done to it is done to what is held.

// handle holds what stands at path, a link itself if it is one, and returns the path
// that names it whatever becomes of its name.
func handle(path string) (file *os.File, held string, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), "/proc/self/fd/" + strconv.Itoa(fd), nil //nolint:gosec // a descriptor is not negative
}

// setOwner gives mode and group to what this process has made at path, if it is still
// of that kind.
func setOwner(path string, kind, mode os.FileMode, gid int) error {
	file, held, err := handle(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Type() != kind {
		return fmt.Errorf("somebody has replaced %s: it is %v now, its mode is left alone", path, info.Mode())
	}
	if err := os.Chmod(held, mode); err != nil {
		return err
	}
	if gid < 0 {
		return nil
	}
	return os.Chown(held, -1, gid)
}

// removeDead removes a socket that nobody serves. Of what takes its place meanwhile
// no more than a name goes, and no directory.
func removeDead(path string) error {
	file, held, err := handle(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket: move it away", path)
	}
	conn, err := net.DialTimeout("unix", held, time.Second)
	if err == nil {
		_ = conn.Close()
		return errors.New("another process serves this socket: stop it first, or choose another --socket-dir")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find out whether the old socket is dead: %w", err)
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove dead socket: %w", err)
	}
	return nil
}
