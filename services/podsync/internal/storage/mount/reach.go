package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
)

// MostLinks is how many links the kernel follows in one path.
const MostLinks = 40

// AskedAt is Reach without what is found. Of what is not there nobody is asked.
func (k *Kernel) AskedAt(path string) (string, error) {
	found, at, err := k.Reach(path)
	if found != nil {
		_ = found.Close()
	}
	if _, is := errors.AsType[*os.PathError](err); is {
		err = nil
	}
	return at, err
}

// Reach reads the table of mounts, and goes along the path with its links, from one handle to
// the next, by what lies outside of the mounts that somebody answers for: whatever becomes of
// the path meanwhile, nobody is asked. One that the kernel would not take either, for it is too
// long or its links lead to one that is, is gone along no further.
func (k *Kernel) Reach(path string) (found *os.File, at string, err error) {
	if err := tooLong(path); err != nil {
		return nil, "", err
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, "", fmt.Errorf("list the mounts that %s may lie on: %w", path, err)
	}
	w := way{done: "/", left: strings.Split(path, "/"), asked: map[string]bool{}, own: make(map[int]bool, len(mounts)), magic: map[int]bool{}}
	for _, m := range mounts {
		if isServed(m.FSType) {
			w.asked[m.Mountpoint] = true
		} else {
			w.own[m.ID] = true
			w.magic[m.ID] = m.FSType == "proc"
		}
	}
	return w.end()
}

// end goes to the path's end, or to the first place where somebody is asked.
func (w *way) end() (found *os.File, at string, err error) {
	defer func() { _ = w.here.Close() }()
	if w.here, err = os.OpenFile("/", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return nil, "", err
	}
	for !w.asked[w.done] {
		if len(w.left) == 0 {
			found, w.here = w.here, nil
			return found, "", nil
		}
		if at, err := w.step(); at != "" || err != nil {
			return nil, at, err
		}
	}
	return nil, w.done, nil
}

// tooLong refuses a path that the kernel would, as a pod may have made it: each step takes longer
// with what lies behind it.
func tooLong(path string) error {
	if len(path) < unix.PathMax {
		return nil
	}
	return &os.PathError{Op: "open", Path: strings.ToValidUTF8(path[:64], "") + " …", Err: unix.ENAMETOOLONG}
}

// way is how far a path was gone along.
type way struct {
	here  *os.File // a handle of what was come to
	done  string   // its path, which has no links
	left  []string // the names that are left
	links int

	asked map[string]bool // the places of mounts of which somebody is asked
	own   map[int]bool    // the mounts of which nobody is asked
	magic map[int]bool    // those of them with links that lead elsewhere than they read
}

// step goes on by one name, or says that somebody is asked there: also by a mount that has come
// since the table was read, of which that is not known.
func (w *way) step() (at string, err error) {
	name := w.left[0]
	w.left = w.left[1:]
	next := filepath.Join(w.done, name)
	if err := tooLong(next); err != nil {
		return "", err
	}
	if w.asked[next] {
		w.done = next
		return "", nil
	}
	if name == "" { // between slashes, or after the last
		return "", w.directory()
	}
	fd, err := eintr.Openat(int(w.here.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: next, Err: err}
	}
	file := os.NewFile(uintptr(fd), next)
	id, err := ID(fd)
	if err != nil || !w.own[id] {
		_ = file.Close()
		return next, err
	}
	to, isLink := linkOf(fd)
	if isLink && w.magic[id] && (filepath.IsAbs(to) || strings.HasPrefix(to, "(unreachable)")) {
		_ = file.Close()
		return next, nil // Of a process's root, directory or file; who lies there is not known.
	}
	if !isLink {
		_ = w.here.Close()
		w.here, w.done = file, next
		return "", nil
	}
	_ = file.Close()
	if w.links++; w.links > MostLinks {
		return "", &os.PathError{Op: "open", Path: next, Err: unix.ELOOP}
	}
	w.left = append(strings.Split(to, "/"), w.left...)
	if !filepath.IsAbs(to) {
		return "", nil
	}
	_ = w.here.Close()
	w.here, err = os.OpenFile("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	w.done = "/"
	return "", err
}

// directory says whether what was come to is one, as a slash after it has it. Nobody is asked.
func (w *way) directory() error {
	info, err := w.here.Stat()
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "open", Path: w.done + "/", Err: unix.ENOTDIR}
	}
	return err
}

// linkOf is where a link leads that is open as a handle.
func linkOf(fd int) (to string, is bool) {
	text := make([]byte, unix.PathMax)
	n, err := eintr.Readlinkat(fd, "", text)
	if err != nil {
		return "", false
	}
	return string(text[:n]), true
}

// ID is that of the mount that an open file lies in; every kernel shows it, and asks nobody.
func ID(fd int) (int, error) {
	data, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.New("/proc shows no mount of an open file")
}
