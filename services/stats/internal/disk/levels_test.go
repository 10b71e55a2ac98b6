package disk

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nest makes directories that deep, each in the next with a file and a directory beside
// it, and returns the outermost. It is removed level by level: os.RemoveAll opens all.
func nest(t *testing.T, depth int, name string) string {
	t.Helper()
	top, other := filepath.Join(t.TempDir(), "top"), filepath.Join(t.TempDir(), "other")
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(top, 0o700))
	for range depth {
		must(os.Mkdir(other, 0o700))
		must(os.WriteFile(filepath.Join(other, "z"), []byte("x"), 0o600))
		must(os.Mkdir(filepath.Join(other, "a"), 0o700))
		must(os.Rename(top, filepath.Join(other, name)))
		top, other = other, top
	}
	t.Cleanup(func() {
		for {
			err := os.Rename(filepath.Join(top, name), other)
			must(os.RemoveAll(top))
			if err != nil {
				return
			}
			top, other = other, top
		}
	})
	return top
}

// open is how many files this process has open.
func open(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// A container hides nothing from what its storage is limited by.
func TestWhatLiesDeepIsCountedWithFewOpenFiles(t *testing.T) {
	const depth = 400
	for _, name := range []string{"d", strings.Repeat("n", 255)} {
		top := nest(t, depth, name)
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		few := limit
		few.Cur = uint64(open(t) + 2*mostOpen + 20) //nolint:gosec // Not negative.
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		before := open(t)
		got, err := Walk(t.Context(), top, nil)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if want := uint64(3*depth + 1); err != nil || got.Inodes != want {
			t.Errorf("%d files and directories, want %d; %v", got.Inodes, want, err)
		}
		if now := open(t); now != before {
			t.Errorf("%d files are open, %d were", now, before)
		}
	}
}

// Where it ends somebody may have put what fills the disk.
func TestThatThereIsMoreBelowThanIsFollowedIsSaid(t *testing.T) {
	top := nest(t, 10, "d")
	for levels, want := range map[int]Tree{5: {Inodes: 16, Deeper: true}, 100: {Inodes: 31}} {
		got, err := walkDown(t.Context(), top, levels, nil)
		if err != nil || got.Inodes != want.Inodes || got.Deeper != want.Deeper {
			t.Errorf("of %d levels: %+v, %v", levels, got, err)
		}
	}
}

// Who moves what is being counted loses no more than what was moved.
func TestAWalkGoesOnAtTheTopWhenADirectoryWasMoved(t *testing.T) {
	top := nest(t, 3*mostOpen, "d")
	if err := os.WriteFile(filepath.Join(top, "zz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, levels := &walk{}, []level{}
	path := top
	for range 3 * mostOpen {
		var st unix.Stat_t
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil || unix.Fstat(fd, &st) != nil {
			t.Fatal(err)
		}
		levels = append(levels, level{fd: fd, at: inode{st.Dev, st.Ino}})
		path = filepath.Join(path, "d")
	}
	defer func() {
		for i := range levels {
			w.leave(&levels[i])
		}
	}()
	for i := mostOpen; i < len(levels)-1; i++ {
		w.leave(&levels[i])
	}
	if got := w.up(levels); len(got) != len(levels)-1 || got[len(got)-1].fd < 0 || w.tree.Deeper {
		t.Fatalf("%d levels above %d", len(got), len(levels))
	}
	levels[len(levels)-2].at.number++ // another has its place
	w.leave(&levels[len(levels)-2])
	last, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	levels[len(levels)-1].fd = last
	if got := w.up(levels); len(got) != mostOpen || !w.tree.Deeper {
		t.Errorf("it goes on at level %d, want %d; that there is more is said: %v", len(got), mostOpen, w.tree.Deeper)
	}
}

// Else a container hid what it has beside a directory by moving that.
func TestWhatIsLeftBesideADirectoryThatIsMovedWhileItIsWalkedIsSaidToBeThere(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	path, moved := root, ""
	for i := range 3 * mostOpen {
		for n := range 8 {
			if err := os.MkdirAll(filepath.Join(path, "beside"+strconv.Itoa(n)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if path = filepath.Join(path, "d"); i == mostOpen+40 {
			moved = path
		}
	}
	count := func(dir string, soFar func(Tree)) Tree {
		got, err := Walk(t.Context(), dir, soFar)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	all, some := count(root, nil).Inodes, count(moved, nil).Inodes
	lost := 0
	for reads := 1; reads < 2*int(all); reads += 200 { //nolint:gosec // Some thousands.
		n := 0
		got := count(root, func(Tree) {
			if n++; n == reads {
				_ = os.Rename(moved, filepath.Join(root, "elsewhere"))
			}
		})
		_ = os.Rename(filepath.Join(root, "elsewhere"), moved)
		if got.Deeper {
			lost++
		} else if got.Inodes < all-some {
			t.Errorf("it was moved at directory %d: of %d that stayed %d are counted", reads, all-some, got.Inodes)
		}
	}
	if lost == 0 {
		t.Error("nothing was ever lost: this tests nothing")
	}
}

func TestADirectoryThatCannotBeReadToItsEndMayHaveMore(t *testing.T) {
	w := &walk{levels: mostLevels}
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // Nothing was written.
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.below(t.Context(), fd, &unix.Stat_t{}); err != nil || !w.tree.Deeper {
		t.Errorf("%+v, %v", w.tree, err)
	}
}

func TestADeepWalkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Walk(ctx, nest(t, 10, "d"), nil); err == nil {
		t.Error("it goes on")
	}
}
