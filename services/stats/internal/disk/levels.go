package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// mostOpen bounds the open directories of one walk: so many from the top, to which
	// it always finds back, and so many at the bottom. Those between are closed and
	// opened again from below.
	mostOpen = 64
	// mostLevels bounds the memory of one walk. What lies deeper is not counted, and that
	// is said.
	mostLevels = 1 << 17
	// namesBytes is how much of a directory is read at once: a directory of a million
	// files takes no more memory.
	namesBytes = 8 << 10
)

// level is a directory on the way from the top to where a walk is.
type level struct {
	// fd is -1 while it is closed.
	fd int
	at inode
	// next is where the entries begin that were not looked at, for lseek.
	next int64
	// rest are those of them that were read, in buffer; both nil when none are.
	rest, buffer []byte
}

// below counts what is in the directory fd, at any depth, and closes it. The stack is its
// own: a container may nest directories deeper than goroutines' stacks and the number of
// open files reach.
func (w *walk) below(ctx context.Context, fd int, st *unix.Stat_t) error {
	levels := []level{{fd: fd, at: inode{st.Dev, st.Ino}}}
	defer func() {
		for i := range levels {
			w.leave(&levels[i])
		}
	}()
	for len(levels) > 0 {
		here := &levels[len(levels)-1]
		name, err := here.name(ctx, w)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // What is left of it is not known; the others are none the worse.
			w.tree.Deeper = true
		}
		if name == "" {
			levels = w.up(levels)
			continue
		}
		down, ok := w.entry(here.fd, name)
		if !ok {
			continue
		}
		if len(levels) >= w.levels {
			w.tree.Deeper = true
			w.leave(&down)
			continue
		}
		if between := len(levels) - mostOpen; between >= mostOpen {
			w.leave(&levels[between])
		}
		levels = append(levels, down)
	}
	return nil
}

// entry counts an entry of a directory, and opens it when it is one, too, to be counted.
func (w *walk) entry(parent int, name string) (level, bool) {
	var st unix.Stat_t
	if unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil { // It vanished.
		return level{}, false
	}
	if st.Dev != w.device || !w.count(&st) || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return level{}, false
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil { // It vanished, or may not be read.
		w.tree.Deeper = w.tree.Deeper || errors.Is(err, unix.EIO) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
		return level{}, false
	}
	// Of what was put there meanwhile the way up would not be known.
	if unix.Fstat(fd, &st) != nil || st.Dev != w.device {
		_ = unix.Close(fd)
		return level{}, false
	}
	return level{fd: fd, at: inode{st.Dev, st.Ino}}, true
}

// up leaves the last level, and opens the one above again if it was closed. When the
// directory was moved meanwhile, that is none of the walk's: it goes on at the next that
// is open, and what is left in those between is not counted.
func (w *walk) up(levels []level) []level {
	last := levels[len(levels)-1]
	defer w.leave(&last)
	levels = levels[:len(levels)-1]
	if len(levels) == 0 || levels[len(levels)-1].fd >= 0 {
		return levels
	}
	if levels[len(levels)-1].reopen(last.fd) {
		return levels
	}
	w.tree.Deeper = true
	for len(levels) > 0 && levels[len(levels)-1].fd < 0 {
		levels = levels[:len(levels)-1]
	}
	return levels
}

// reopen opens a directory from one in it; false when that is in another by now.
func (l *level) reopen(below int) bool {
	fd, err := unix.Openat(below, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && (inode{st.Dev, st.Ino}) == l.at {
		if _, err := unix.Seek(fd, l.next, unix.SEEK_SET); err == nil {
			l.fd = fd
			return true
		}
	}
	_ = unix.Close(fd)
	return false
}

// leave closes a level, and keeps what it was read into for another.
func (w *walk) leave(l *level) {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
	}
	if l.buffer != nil {
		w.spare = append(w.spare, l.buffer)
	}
	l.fd, l.rest, l.buffer = -1, nil, nil
}

// Where the parts of an entry are that the kernel gives (struct linux_dirent64).
const (
	entryNext   = 8
	entryLength = 16
	entryName   = 19
)

// name is that of the next entry; empty after the last.
func (l *level) name(ctx context.Context, w *walk) (string, error) {
	for {
		if len(l.rest) < entryName {
			if err := l.read(ctx, w); err != nil || len(l.rest) < entryName {
				return "", err
			}
		}
		size := int(binary.NativeEndian.Uint16(l.rest[entryLength:]))
		if size < entryName || size > len(l.rest) {
			return "", errors.New("the filesystem gives entries that cannot be read")
		}
		entry := l.rest[:size]
		l.next = int64(binary.NativeEndian.Uint64(entry[entryNext:])) //nolint:gosec // It is a signed number there.
		l.rest = l.rest[size:]
		name, _, _ := bytes.Cut(entry[entryName:], []byte{0})
		if text := string(name); text != "." && text != ".." && text != "" {
			return text, nil
		}
	}
}

// read reads the next entries, none after the last.
func (l *level) read(ctx context.Context, w *walk) error {
	if w.soFar != nil {
		w.soFar(w.tree)
	}
	if last := len(w.spare) - 1; l.buffer == nil && last >= 0 {
		l.buffer, w.spare = w.spare[last], w.spare[:last]
	} else if l.buffer == nil {
		l.buffer = make([]byte, namesBytes)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Getdents(l.fd, l.buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOENT) { // It was removed.
			n, err = 0, nil
		}
		if err != nil {
			return err
		}
		l.rest = l.buffer[:n]
		return nil
	}
}
