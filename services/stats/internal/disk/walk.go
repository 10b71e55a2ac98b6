package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Tree is what a directory and everything below it takes.
type Tree struct {
	// Bytes is the space taken, as du counts it: blocks, hard links once.
	Bytes uint64
	// Inodes is how many files and directories there are, hard links once.
	Inodes uint64
	// Deeper: there may be more that is not counted, in directories below more than are
	// followed, beside one that was moved while it was walked, or in one that cannot be read
	// to its end.
	Deeper bool
}

const (
	blockBytes = 512
	// batch is how many names are read at once, so that a directory of a
	// million files takes no memory.
	batch = 256
	// mostLinked bounds how many files with more than one name are remembered: a
	// container may make millions of them.
	mostLinked = 1 << 18
)

// inode identifies a file with more than one name.
type inode struct{ device, number uint64 }

type walk struct {
	tree   Tree
	device uint64
	linked map[inode]struct{}
	// parts is what is counted of files beyond mostLinked and no whole file yet.
	parts float64
	// spare are what entries were read into, and are not in use.
	spare [][]byte
	// levels is how many directories in each other are followed.
	levels int
	// soFar is told what was counted, again and again; nil is not.
	soFar func(Tree)
}

// Walk measures a tree. It stays on the filesystem of dir and follows no link.
// What vanishes meanwhile is not counted. soFar, which may be nil, is told meanwhile what
// was counted; with an error, that is returned.
func Walk(ctx context.Context, dir string, soFar func(Tree)) (Tree, error) {
	return walkDown(ctx, dir, mostLevels, soFar)
}

// walkDown is Walk with the number of levels that are followed.
func walkDown(ctx context.Context, dir string, levels int, soFar func(Tree)) (Tree, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Tree{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return Tree{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	w := walk{device: st.Dev, linked: map[inode]struct{}{}, soFar: soFar, levels: levels}
	w.count(&st)
	if err := w.below(ctx, fd, &st); err != nil {
		return w.tree, fmt.Errorf("measure %s: %w", dir, err)
	}
	return w.tree, nil
}

// Files measures the plain files in a directory and nothing below it, or the
// one file that the path names.
func Files(path string) (Tree, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Tree{}, fmt.Errorf("measure %s: %w", path, err)
	}
	w := walk{device: st.Dev, linked: map[inode]struct{}{}}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		w.count(&st)
		return w.tree, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return Tree{}, fmt.Errorf("measure %s: %w", path, err)
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(batch)
		for _, name := range names {
			var entry unix.Stat_t
			if unix.Fstatat(int(f.Fd()), name, &entry, unix.AT_SYMLINK_NOFOLLOW) == nil && entry.Mode&unix.S_IFMT == unix.S_IFREG {
				w.count(&entry)
			}
		}
		if errors.Is(err, io.EOF) || len(names) == 0 {
			return w.tree, nil
		}
		if err != nil {
			w.tree.Deeper = true
			return w.tree, fmt.Errorf("measure %s: %w", path, err)
		}
	}
}

// count adds a file; false when it was counted before under another name. When
// too many with several names are remembered, each name of another counts as its
// part of the file.
func (w *walk) count(st *unix.Stat_t) bool {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		key := inode{st.Dev, st.Ino}
		if _, seen := w.linked[key]; seen {
			return false
		}
		if len(w.linked) >= mostLinked {
			w.part(st)
			return true
		}
		w.linked[key] = struct{}{}
	}
	w.tree.Inodes++
	w.tree.Bytes += uint64(st.Blocks) * blockBytes //nolint:gosec // Positive on every kernel.
	return true
}

// part adds one of a file's names.
func (w *walk) part(st *unix.Stat_t) {
	names := float64(st.Nlink)
	w.tree.Bytes += uint64(float64(st.Blocks) * blockBytes / names)
	if w.parts += 1 / names; w.parts > 1-1e-6 {
		w.parts--
		w.tree.Inodes++
	}
}
