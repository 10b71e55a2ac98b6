// Package beneath owns opening files below a directory in which somebody else
// may plant links, pipes and devices. It must never follow a link that leads out,
// and never open what is no file: that a device is opened may be enough for harm. It
// never waits for who has a lease on a file (fcntl, F_SETLEASE).
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
)

// Open opens the regular file path, which must be below root, for reading. No link
// below root is followed; the root itself may be one. Anything else than a regular file is fs.ErrInvalid
// and is not opened: a pipe cannot hold up, and a device is not asked.
func Open(root, path string) (*os.File, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("%s is not below %s: %w", path, root, fs.ErrPermission)
	}
	handle, err := walk(root, rel)
	if err != nil {
		return nil, err
	}
	return file(handle, path)
}

// OpenInside is Open, but links that stay below root are followed.
func OpenInside(root, path string) (*os.File, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	handle, err := Look(dir, path)
	if err != nil {
		return nil, err
	}
	return file(handle, path)
}

// file opens what a handle is of, and closes the handle.
func file(handle *os.File, path string) (*os.File, error) {
	defer func() { _ = handle.Close() }()
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: %w", path, fs.ErrInvalid)
	}
	// A lease of its owner's would else make this wait for as long as he likes.
	f, err := eintr.Get(func() (*os.File, error) { return pathrs.Reopen(handle, os.O_RDONLY|unix.O_NONBLOCK) })
	if errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("somebody has a lease on %s, and is told to give it up: %w", path, err)
	}
	return f, err
}

// walk gives a handle of root/rel, entering one directory after the other.
func walk(root, rel string) (*os.File, error) {
	at, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	names := strings.Split(rel, "/")
	for i, name := range names {
		flags := unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
		if i < len(names)-1 {
			flags |= unix.O_DIRECTORY
		}
		fd, err := eintr.Openat(int(at.Fd()), name, flags, 0)
		_ = at.Close()
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		at = os.NewFile(uintptr(fd), name) //nolint:gosec // A descriptor is not negative.
	}
	return at, nil
}

// Look gives a handle of what is at path below dir, and opens nothing. Links that
// stay below are followed, those that lead out are an error.
func Look(dir *os.File, path string) (*os.File, error) { return look(dir, path, 0) }

// LookNear is Look that enters no mount, which is EXDEV, too; before Linux 5.6 it does.
func LookNear(dir *os.File, path string) (*os.File, error) {
	return look(dir, path, unix.RESOLVE_NO_XDEV)
}

func look(dir *os.File, path string, also uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | also}
	for range 128 { // EAGAIN: something was renamed meanwhile
		fd, err := eintr.Openat2(int(dir.Fd()), path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("it leads out of the directory: %w", err)
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			// Before Linux 5.6, or a seccomp filter.
			return eintr.Get(func() (*os.File, error) { return pathrs.OpenatInRoot(dir, path) })
		case !errors.Is(err, unix.EAGAIN):
			return nil, err
		}
	}
	return nil, errors.New("its path keeps changing while it is looked up")
}
