package volume

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The attributes (chattr +i, chattr +a) with which the kernel lets nobody remove a file,
// a directory, or what is in it. A pod that may set them leaves them behind.
const (
	immutable  = 0x10
	appendOnly = 0x20
	forbidding = immutable | appendOnly
)

// removeForbidden removes a name of an open directory, which the kernel forbids. Where
// attributes are the reason they are taken away: of the directory, which lies in the tree,
// then of what has the name, if that is a file or directory and nothing is mounted on it.
// A file that has other names is given them back, as it may lie elsewhere, too.
func (t *tree) removeForbidden(dir *os.File, name, full string, how int) error {
	if _, err := t.free(dir, dir.Name()); err != nil {
		return err
	}
	err := t.unlinkat(int(dir.Fd()), name, how)
	if !errors.Is(err, unix.EPERM) {
		return gone("remove", full, err)
	}
	file, openErr := t.openForbidden(dir, name, full)
	if file == nil {
		return errors.Join(gone("remove", full, err), openErr)
	}
	defer func() { _ = file.Close() }()
	had, err := t.free(file, full)
	if err != nil {
		return err
	}
	err = t.unlinkat(int(dir.Fd()), name, how)
	var st unix.Stat_t
	if had != 0 && unix.Fstat(int(file.Fd()), &st) == nil && st.Nlink > 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
		err = errors.Join(err, t.setFlags(int(file.Fd()), had))
	}
	return gone("remove", full, err)
}

// openForbidden opens what may have attributes: nil is a link, a pipe or a device, which
// is not opened.
func (t *tree) openForbidden(dir *os.File, name, full string) (*os.File, error) {
	handle, err := t.handle(dir, name, full)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(handle) }()
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return nil, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil, nil
	}
	// What the handle is of, whatever has its name by now. A lease is not waited for.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(handle), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), full), nil
}

// free takes the attributes away that forbid removal, and says what there were.
func (t *tree) free(file *os.File, full string) (had uint32, err error) {
	fd := int(file.Fd())
	had, err = unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil || had&forbidding == 0 {
		return 0, nil // a filesystem without attributes, or it has none: something else forbids it
	}
	if err := t.setFlags(fd, had&^forbidding); err != nil {
		return 0, fmt.Errorf("%s is immutable or append-only, and that cannot be taken away (it takes CAP_LINUX_IMMUTABLE; chattr -ia does it by hand): %w", full, err)
	}
	return had, nil
}

// setFlags sets the attributes of an open file or directory.
func setFlags(fd int, flags uint32) error {
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags))
}

// gone is what came of a removal; that something was gone already is fine.
func gone(op, path string, err error) error {
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}
