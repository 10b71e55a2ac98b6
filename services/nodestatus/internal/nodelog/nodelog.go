// Package nodelog reads the logs of the node: files below its log directory,
// and what the journal has of a service. It must never run a shell, never leave
// the log directory, whatever links are in it, and never open what is neither a
// file nor a directory.
package nodelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/rpcerr"
)

// Root is where a node's logs are.
const Root = "/var/log"

const (
	// mostEntries bounds what is shown of a directory, mostRead what is read of it to
	// find the first by name.
	mostEntries = 10000
	mostRead    = 50000
	// mostLinks bounds the links on the way to a file.
	mostLinks = 40
)

// Entry is a file or a directory.
type Entry struct {
	// Name without its directory.
	Name string
	// Size in bytes; 0 for directories.
	Size      int64
	Modified  time.Time
	Directory bool
}

// Dir reads below a directory. Safe for concurrent use.
type Dir struct{ root string }

// NewDir returns a Dir.
func NewDir(root string) *Dir { return &Dir{root: filepath.Clean(root)} }

// Stat describes what is at a slash-separated path, and if that is a directory
// what is in it, in name order. What is not there, leads out of the directory,
// or is neither file nor directory is rpcerr.ErrNotFound.
func (d *Dir) Stat(name string) (Entry, []Entry, error) {
	f, info, err := d.open(name)
	if err != nil {
		return Entry{}, nil, err
	}
	defer func() { _ = f.Close() }()
	self := entry(info)
	if !self.Directory {
		return self, nil, nil
	}
	found, err := f.ReadDir(mostRead)
	if err != nil && !errors.Is(err, io.EOF) {
		return Entry{}, nil, fmt.Errorf("list node log directory %q: %w", name, err)
	}
	slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	entries := make([]Entry, 0, min(len(found), mostEntries))
	for _, e := range found[:min(len(found), mostEntries)] {
		if info, err := e.Info(); err == nil { // else it went away meanwhile
			entries = append(entries, entry(info))
		}
	}
	return self, entries, nil
}

// Open opens a regular file for reading; the caller closes it.
func (d *Dir) Open(name string) (*os.File, error) {
	f, info, err := d.open(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		_ = f.Close()
		return nil, fmt.Errorf("%w: node log %q is a directory", rpcerr.ErrInvalid, name)
	}
	return f, nil
}

func entry(info fs.FileInfo) Entry {
	// What is no text cannot be sent, and the others with it.
	e := Entry{Name: strings.ToValidUTF8(info.Name(), "\uFFFD"), Modified: info.ModTime(), Directory: info.IsDir()}
	if !e.Directory {
		e.Size = info.Size()
	}
	return e
}

// open opens a file or a directory. os.Root keeps it below the directory also
// when somebody changes links meanwhile; resolving them first is only for those
// that are absolute and lead back into it, which os.Root refuses: so are
// /var/log/containers' links to /var/log/pods.
func (d *Dir) open(name string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return nil, nil, fmt.Errorf("open the node's log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	clean, err := d.resolve(root, name)
	if err != nil {
		return nil, nil, missing(name, err)
	}
	f, err := root.OpenFile(clean, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		f, err = openRegular(root, clean)
	}
	if err != nil {
		return nil, nil, missing(name, err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, nil, missing(name, err)
	}
	return f, info, nil
}

// openRegular opens a file and nothing else: to open a device may be enough for harm,
// and a pipe waits for who writes to it.
func openRegular(root *os.Root, name string) (*os.File, error) {
	handle, err := root.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = handle.Close() }()
	info, err := handle.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a file nor a directory")
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", handle.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), handle.Name()), nil //nolint:gosec // A descriptor is not negative.
}

func missing(name string, err error) error {
	return fmt.Errorf("%w: node log %q: %v", rpcerr.ErrNotFound, name, err) //nolint:errorlint // the class is the caller's, the cause is for people
}

var errOutside = errors.New("it leads out of the log directory")

// resolve returns the path below the root that name stands for.
func (d *Dir) resolve(root *os.Root, name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errors.New("it has a zero byte")
	}
	todo := strings.Split(name, "/")
	at, links := ".", 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", errOutside
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := root.Lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return "", errors.New("there are too many links on the way")
		}
		target, err := root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			rest, ok := strings.CutPrefix(path.Clean(target)+"/", d.root+"/")
			if !ok {
				return "", errOutside
			}
			at, target = ".", rest
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return at, nil
}
