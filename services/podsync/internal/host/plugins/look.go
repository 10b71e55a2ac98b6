package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What is looked at of the directory. Each socket has a goroutine and a connection, and
// each directory a watch of the kernel's.
const (
	mostSockets = 128
	mostDirs    = 64
	mostDepth   = 4
)

// socket is one that a plugin may serve at.
type socket struct {
	path string
	id   identity
}

// identity tells a file from another that has taken its name.
type identity struct {
	device, inode uint64
	// born is when it was made, or what else is known of its time.
	born unix.StatxTimestamp
}

// sockets is what a look has found.
type sockets struct {
	list []socket
	dirs []string
	// more says that there is more than is looked at; empty when there is not.
	more string
}

// look finds the sockets at and below dir; links and hidden files are none. known are
// those that are found before all others, however many there are.
func look(ctx context.Context, dir string, known func(path string) bool) (sockets, error) {
	root, err := os.Open(dir)
	if err != nil {
		return sockets{}, err
	}
	l := looking{ctx: ctx, known: known}
	err = l.dir(root, dir, 0)
	l.out.list = append(l.out.list, l.fresh[:max(0, min(len(l.fresh), mostSockets-len(l.out.list)))]...)
	return l.out, err
}

type looking struct {
	ctx   context.Context
	known func(path string) bool
	out   sockets
	fresh []socket
}

// dir looks into an open directory and closes it.
func (l *looking) dir(dir *os.File, path string, depth int) error {
	defer dir.Close()
	l.out.dirs = append(l.out.dirs, path)
	var below []string
	for {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		entries, err := dir.ReadDir(256)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case strings.HasPrefix(e.Name(), "."):
			case e.Type() == fs.ModeSocket:
				l.socket(dir, path, e.Name())
			case e.IsDir():
				if depth < mostDepth && len(below) < mostDirs {
					below = append(below, e.Name())
				} else {
					l.out.more = fmt.Sprintf("of the directories not more than %d are looked at, and none that is more than %d deep", mostDirs, mostDepth)
				}
			}
		}
	}
	for _, name := range below {
		if len(l.out.dirs) >= mostDirs {
			l.out.more = fmt.Sprintf("of the directories not more than %d are looked at", mostDirs)
			return nil
		}
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it is gone, or something else by now
		}
		inside := path + "/" + name
		if err := l.dir(os.NewFile(uintptr(fd), inside), inside, depth+1); err != nil { //nolint:gosec // A descriptor is not negative.
			return err
		}
	}
	return nil
}

// socket takes one in, if there is room.
func (l *looking) socket(dir *os.File, path, name string) {
	s := socket{path: path + "/" + name}
	known := l.known(s.path)
	if !known && len(l.fresh) >= mostSockets {
		l.out.more = fmt.Sprintf("of the sockets not more than %d are looked at", mostSockets)
		return
	}
	id, mode, err := identify(int(dir.Fd()), name)
	if err != nil || mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	s.id = id
	if known {
		l.out.list = append(l.out.list, s)
	} else {
		l.fresh = append(l.fresh, s)
	}
}

// identify looks at a file of an open directory, or at the directory itself when name
// is empty, and follows no link.
func identify(dir int, name string) (identity, uint16, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return identity{}, 0, err
	}
	id := identity{device: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), inode: st.Ino, born: st.Btime}
	if st.Mask&unix.STATX_BTIME == 0 {
		id.born = st.Ctime
	}
	return id, st.Mode, nil
}
