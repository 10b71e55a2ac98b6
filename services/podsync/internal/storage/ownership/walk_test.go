package ownership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deepen makes directories called d in each other, also deeper than a path can name, beside
// some files in each.
func deepen(t *testing.T, root string, deep int) {
	t.Helper()
	at, err := os.Open(root)
	for i := 0; i < deep && err == nil; i++ {
		for f := range 2 {
			err = errors.Join(err, unix.Mknodat(int(at.Fd()), fmt.Sprint("file", f), unix.S_IFREG|0o600, 0))
		}
		err = errors.Join(err, unix.Mkdirat(int(at.Fd()), "d", 0o700))
		fd, openErr := unix.Openat(int(at.Fd()), "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = at.Close()
		at, err = os.NewFile(uintptr(fd), "d"), errors.Join(err, openErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = at.Close()
}

// deeper calls do with each directory called d, down to the last.
func deeper(t *testing.T, root string, do func(depth int, dir *os.File)) {
	t.Helper()
	at, err := os.Open(root)
	for depth := 0; err == nil; depth++ {
		do(depth, at)
		fd, openErr := unix.Openat(int(at.Fd()), "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = at.Close()
		at, err = os.NewFile(uintptr(fd), "d"), openErr
	}
	if !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
}

func emptyRoot(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	return t.TempDir()
}

// inMemory is an empty directory in which a deep tree is made in no time.
func inMemory(t *testing.T) string {
	t.Helper()
	_ = emptyRoot(t)
	dir, err := os.MkdirTemp("/dev/shm", "polylet-ownership-")
	if err != nil {
		t.Skipf("it needs a directory in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// open is how many files this process has open.
func open(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestATreeIsGivenHoweverDeepItsPathsLead(t *testing.T) {
	root := emptyRoot(t)
	const deep = mostDepth - 50
	deepen(t, root, deep)
	if err := (Change{Group: give(group)}).Apply(t.Context(), root); err != nil {
		t.Fatalf("%.300v", err)
	}
	last := 0
	deeper(t, root, func(depth int, dir *os.File) {
		last = depth
		for _, name := range []string{".", "file0", "file1"} {
			var st unix.Stat_t
			err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if (err != nil && depth < deep) || (err == nil && (int64(st.Gid) != group || st.Mode&0o660 != 0o660)) {
				t.Errorf("%s, %d deep, has group %d and mode %o: %v", name, depth, st.Gid, st.Mode, err)
			}
		}
	})
	if last != deep {
		t.Errorf("it was looked at only %d deep", last)
	}
}

func TestATreeThatIsTooDeepIsNotGivenAwayWholeAndFewDirectoriesAreOpenAtOnce(t *testing.T) {
	root := inMemory(t)
	deepen(t, root, mostDepth+10)
	before, skipped := open(t), 0
	err := Change{Group: give(group)}.Apply(t.Context(), root)
	if err == nil || !strings.Contains(err.Error(), "directories deep") || strings.Count(err.Error(), "give ") != 1 {
		t.Errorf("the error is %.300v", err)
	}
	if int64(stat(t, root).Gid) == group {
		t.Error("the root shows that all is done")
	}
	err = Change{Group: give(group), Skip: func(error) {
		skipped++
		if more := open(t) - before; more > mostOpen+10 {
			t.Errorf("%d files are open", more)
		}
	}}.Apply(t.Context(), root)
	if err != nil || skipped != 1 || int64(stat(t, root).Gid) != group {
		t.Errorf("%d skipped, %v", skipped, err)
	}
	if after := open(t); after > before {
		t.Errorf("%d files are open, and %d were before", after, before)
	}
}

// TestNothingIsGivenOutsideOfATreeThatIsMovedMeanwhile has a directory that was closed exchanged
// for another above what is given away.
func TestNothingIsGivenOutsideOfATreeThatIsMovedMeanwhile(t *testing.T) {
	root, outside := emptyRoot(t), filepath.Join(t.TempDir(), "outside")
	deepen(t, root, 2*mostOpen)
	if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	moved := false
	ctx := watched{t.Context(), func() {
		from := filepath.Join(root, strings.Repeat("d/", mostOpen/2))
		last := filepath.Join(root, strings.Repeat("d/", 2*mostOpen))
		if !moved && int64(stat(t, filepath.Join(last)).Gid) == group {
			moved = true
			if err := os.Rename(filepath.Join(from, "d"), filepath.Join(outside, "d")); err != nil {
				t.Error(err)
			}
		}
	}}
	err := Change{Group: give(group)}.Apply(ctx, root)
	if !moved || !errors.Is(err, errMoved) {
		t.Errorf("moved: %v, and the error is %.300v", moved, err)
	}
	for _, path := range []string{outside, filepath.Join(outside, "secret")} {
		if st := stat(t, path); int64(st.Gid) == group {
			t.Errorf("%s was given away", path)
		}
	}
}

// watched calls look whenever it is asked whether it has ended.
type watched struct {
	context.Context
	look func()
}

func (w watched) Err() error {
	w.look()
	return w.Context.Err()
}

// TestADirectoryBesideADeepOneIsGiven: who comes up from below finds the directory closed that
// would be closed for it, and goes down beside. What is read first of a directory differs
// between filesystems, so there is one on both sides.
func TestADirectoryBesideADeepOneIsGiven(t *testing.T) {
	root := inMemory(t)
	half := filepath.Join(root, strings.Repeat("d/", mostOpen+1))
	err := os.MkdirAll(filepath.Join(half, strings.Repeat("d/", mostOpen)), 0o700)
	files := []string{filepath.Join(half, "a/e/file"), filepath.Join(half, "z/e/file"), filepath.Join(root, "a/e/file"), filepath.Join(root, "z/e/file")}
	for _, file := range files {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := (Change{Group: give(group)}).Apply(t.Context(), root); err != nil {
		t.Errorf("%.300v", err)
	}
	for _, file := range files {
		if st := stat(t, file); int64(st.Gid) != group {
			t.Errorf("%s has group %d", file, st.Gid)
		}
	}
}

// TestADirectoryThatIsRemovedWhileTheWalkIsInItIsNothingToGive, also where those above it are closed.
func TestADirectoryThatIsRemovedWhileTheWalkIsInItIsNothingToGive(t *testing.T) {
	for _, above := range []string{"", strings.Repeat("d/", mostOpen-1), strings.Repeat("d/", mostOpen), strings.Repeat("d/", mostOpen+5)} {
		root := inMemory(t)
		going, stays := filepath.Join(root, above, "going"), filepath.Join(root, above, "stays")
		if err := errors.Join(os.MkdirAll(filepath.Join(going, "in"), 0o700), os.WriteFile(stays, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		change := Change{Group: give(group), Open: func(dir *os.File, name string) (int, error) {
			fd, err := openPath(dir, name)
			if name == "in" {
				err = errors.Join(err, os.RemoveAll(going))
			}
			return fd, err
		}}
		if err := change.Apply(t.Context(), root); err != nil {
			t.Errorf("in %q: %v", above, err)
		}
		for _, path := range []string{stays, filepath.Join(root, above), root} {
			if st := stat(t, path); int64(st.Gid) != group {
				t.Errorf("in %q: %s has group %d", above, path, st.Gid)
			}
		}
	}
}

func TestATreeThatIsRemovedMeanwhileIsNotGiven(t *testing.T) {
	root := filepath.Join(inMemory(t), "root")
	if err := os.MkdirAll(filepath.Join(root, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	change := Change{Group: give(group), Open: func(dir *os.File, name string) (int, error) {
		fd, err := openPath(dir, name)
		return fd, errors.Join(err, os.RemoveAll(root))
	}}
	if err := change.Apply(t.Context(), root); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v, want that it is not there", err)
	}
}

// TestEveryTreeIsGivenWholeWithFewOpen has trees of any form, deeper than what is open.
func TestEveryTreeIsGivenWholeWithFewOpen(t *testing.T) {
	for seed := range uint64(30) {
		root := inMemory(t)
		random, dirs, files := rand.New(rand.NewPCG(seed, 0)), []string{root}, []string{}
		for i := range 400 {
			back := random.IntN(3) // most are made in those that were made last, and so lie deep
			if random.IntN(10) == 0 {
				back = random.IntN(len(dirs))
			}
			path, err := filepath.Join(dirs[max(0, len(dirs)-1-back)], strconv.Itoa(i)), error(nil)
			if random.IntN(4) == 0 {
				err = os.WriteFile(path, nil, 0o600)
			} else {
				err = os.Mkdir(path, 0o700)
				dirs = append(dirs, path)
			}
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, path)
		}
		if err := (Change{Group: give(group)}).Apply(t.Context(), root); err != nil {
			t.Errorf("seed %d: %.300v", seed, err)
		}
		for _, file := range files {
			if st := stat(t, file); int64(st.Gid) != group {
				t.Fatalf("seed %d: %s has group %d", seed, file, st.Gid)
			}
		}
	}
}
