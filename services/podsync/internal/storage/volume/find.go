package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// finder gives a handle of what a path of the host leads to.
type finder func(path string) (*os.File, error)

// findByPath waits for whoever answers for it.
func findByPath(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0) // opens no device and waits for no pipe
}

// find gives a handle of what a path of the host leads to, as far as nobody is asked for that
// who may not answer; else the error is an askedError. What is learned by the handle is of what
// was reached, whatever becomes of the path.
func (s *Set) find(path string) (*os.File, error) {
	if s.deps.Apart == nil {
		return findByPath(path)
	}
	found, at, err := s.deps.Mounter.Reach(path)
	if err != nil {
		return nil, err
	}
	if at != "" {
		return nil, &askedError{at}
	}
	return found, nil
}

// askedError says where a path comes to somebody who may not answer.
type askedError struct{ at string }

func (e *askedError) Error() string {
	return fmt.Sprintf("it is asked for at %s: %v", e.at, unix.EXDEV)
}

// Unwrap says that the way leads elsewhere.
func (e *askedError) Unwrap() error { return unix.EXDEV }

// makeDirs makes a directory that is not there, with those above it, below the first that is.
func (find finder) makeDirs(path string) error {
	made, err := find.below(path)
	if err != nil {
		return err
	}
	return made.Close()
}

func (find finder) below(path string) (*os.File, error) {
	above, err := find(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		above, err = find.below(filepath.Dir(path))
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = above.Close() }()
	name := filepath.Base(path)
	if err := unix.Mkdirat(int(above.Fd()), name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	fd, err := openat2(unix.Openat2).handle(above, name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	made := os.NewFile(uintptr(fd), path)
	if info, err := made.Stat(); err != nil || !info.IsDir() {
		_ = made.Close()
		return nil, errors.Join(err, &os.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR})
	}
	return made, nil
}

// makeFile makes an empty file that is not there, in a directory that is.
func (find finder) makeFile(path string) error {
	above, err := find(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = above.Close() }()
	fd, err := unix.Openat(int(above.Fd()), filepath.Base(path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	return unix.Close(fd)
}
