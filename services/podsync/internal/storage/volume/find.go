package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
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
	dir := filepath.Dir(path)
	above, err := find(dir)
	missing := []string{path}
	if errors.Is(err, fs.ErrNotExist) {
		var all []string // from dir up to the root
		for one := dir; ; one = filepath.Dir(one) {
			all = append(all, one)
			if one == filepath.Dir(one) {
				break
			}
		}
		// To look for one after the other takes the square of a depth that the spec decides.
		first := sort.Search(len(all), func(i int) bool {
			found, failed := find(all[i])
			if errors.Is(failed, fs.ErrNotExist) {
				return false
			}
			if above != nil {
				_ = above.Close() // of one further up
			}
			above, err = found, failed
			return true
		})
		missing = append(missing, all[:first]...)
	}
	for i := len(missing) - 1; i >= 0 && err == nil; i-- {
		var made *os.File
		made, err = makeDirIn(above, missing[i])
		_ = above.Close()
		above = made
	}
	if err != nil {
		return err
	}
	return above.Close()
}

// makeDirIn makes the directory of a path in the one above it, unless it is there, and opens it.
func makeDirIn(above *os.File, path string) (*os.File, error) {
	name := filepath.Base(path)
	if err := eintr.Mkdirat(int(above.Fd()), name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	fd, err := openat2(eintr.Openat2).handle(above, name)
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

// makeFile makes an empty file that is not there, in a directory that is; where links of the
// host lead to it, it is made where they lead.
func (find finder) makeFile(path string) error {
	for to, links := path, 0; links <= mount.MostLinks; links++ {
		dir, name := filepath.Split(to)
		above, err := find(dir + ".")
		if err != nil {
			return err
		}
		next, err := makeFileIn(above, name)
		_ = above.Close()
		if err != nil {
			return &os.PathError{Op: "open", Path: to, Err: err}
		}
		if next == "" {
			return nil
		}
		if to = next; !filepath.IsAbs(to) {
			to = dir + to // as it is: what is above a link is not what its path says
		}
	}
	return &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// makeFileIn makes an empty file in a directory, or reads the link that has its name. One that
// somebody else makes at the same time is as well, such as another pod that wants it. By a link
// nothing is made where the kernel would not go by it either (sysctl fs.protected_symlinks):
// neither its directory's owner nor podsync has placed it where everybody may place links.
func makeFileIn(dir *os.File, name string) (link string, err error) {
	fd, err := eintr.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err == nil {
		return "", unix.Close(fd)
	}
	text := make([]byte, unix.PathMax)
	n, notRead := eintr.Readlinkat(int(dir.Fd()), name, text)
	if !errors.Is(err, unix.EEXIST) || notRead != nil && !errors.Is(notRead, unix.EINVAL) {
		return "", err
	}
	var in, of unix.Stat_t
	if err := errors.Join(eintr.Fstat(int(dir.Fd()), &in), eintr.Fstatat(int(dir.Fd()), name, &of, unix.AT_SYMLINK_NOFOLLOW)); err != nil {
		return "", err
	}
	if notRead != nil { // it is no link
		if of.Mode&unix.S_IFMT == unix.S_IFREG {
			err = nil
		}
		return "", err
	}
	const all = unix.S_ISVTX | unix.S_IWOTH
	if in.Mode&all == all && of.Uid != in.Uid && int(of.Uid) != os.Geteuid() {
		return "", unix.EACCES
	}
	return string(text[:n]), nil
}
