package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernels are those whose openat2 refuses to enter a mount, and those before Linux 5.6, which
// have none; a newer one stands in for them.
var kernels = map[string]func(int, string, *unix.OpenHow) (int, error){
	"new": unix.Openat2,
	"old": func(int, string, *unix.OpenHow) (int, error) { return -1, unix.ENOSYS },
}

func TestRemovalEntersNoMountOnKernelsThatDoNotNameThem(t *testing.T) {
	onKernel(t)
	for name, kernel := range kernels {
		for _, at := range []string{"tree", "tree/a/b"} {
			t.Run(name+" "+at, func(t *testing.T) {
				dir, outside := t.TempDir(), t.TempDir()
				kept := filepath.Join(outside, "kept")
				if err := os.WriteFile(kept, []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
				foreign := filepath.Join(dir, at)
				if err := os.MkdirAll(filepath.Join(dir, "tree", "a", "b"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "tree", "a", "file"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := unix.Mount(outside, foreign, "", unix.MS_BIND, ""); err != nil {
					t.Fatal(err)
				}
				mounted := true
				t.Cleanup(func() {
					if mounted {
						_ = unix.Unmount(foreign, unix.MNT_DETACH)
					}
				})
				remove := func() error {
					return (&tree{ctx: t.Context(), openat2: kernel, unlinkat: unix.Unlinkat, setFlags: setFlags, mostClosed: mostClosed}).removeAll(filepath.Join(dir, "tree"))
				}
				if err := remove(); err == nil || !strings.Contains(err.Error(), foreign+" is a mount point") {
					t.Errorf("err = %v, want it to name %s", err, foreign)
				}
				if data, err := os.ReadFile(kept); err != nil || string(data) != "mine" {
					t.Fatalf("the file behind the mount: %q, %v", data, err)
				}
				if err := unix.Unmount(foreign, 0); err != nil {
					t.Fatal(err)
				}
				mounted = false
				if err := remove(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(dir, "tree")); !os.IsNotExist(err) {
					t.Errorf("the tree is still there: %v", err)
				}
			})
		}
	}
}

// TestARemovalWaitsForNobodyWhoAnswersForWhatIsMountedBelow: a privileged container mounts such
// a thing in its emptyDir, and it stays after it.
func TestARemovalWaitsForNobodyWhoAnswersForWhatIsMountedBelow(t *testing.T) {
	onKernel(t)
	for which, kernel := range kernels {
		for whose, mounts := range map[string]func(t *testing.T, at string){"silent": mountSilent, "dead": mountDead} {
			for _, at := range []string{"tree", "tree/a", "tree/fixed/a"} {
				t.Run(which+" "+whose+" "+at, func(t *testing.T) {
					dir := t.TempDir()
					made(t, dir, []string{at, "tree/fixed"}, []string{"tree/file"})
					foreign := filepath.Join(dir, at)
					if at == "tree/fixed/a" { // the kernel says nothing else then
						chattr(t, filepath.Join(dir, "tree/fixed"), immutable)
					}
					mounts(t, foreign)
					defer func() { _ = unix.Unmount(foreign, unix.MNT_DETACH) }()
					remove := func() error {
						return (&tree{ctx: t.Context(), openat2: kernel, unlinkat: unix.Unlinkat, setFlags: setFlags, mostClosed: mostClosed}).removeAll(filepath.Join(dir, "tree"))
					}
					done := make(chan error, 1)
					go func() { done <- remove() }()
					select {
					case err := <-done:
						if err == nil || !strings.HasPrefix(err.Error(), foreign+" is a mount point") {
							t.Errorf("err = %v, want it to name %s", err, foreign)
						}
					case <-time.After(time.Minute):
						t.Fatal("it is waited for who answers for what is mounted there")
					}
					if err := unix.Unmount(foreign, unix.MNT_DETACH); err != nil {
						t.Fatal(err)
					}
					if err := remove(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// deepTree is one of so many directories in each other.
func deepTree(t testing.TB, depth int) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(root, 0o755); err != nil { //nolint:gosec // As pods make them.
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	_ = unix.Close(fd)
	return root
}

func TestAVeryDeepTreeIsRemoved(t *testing.T) {
	root := deepTree(t, 2100) // longer than any path can be, which is 4096 bytes
	if err := removeTree(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestATreeOfManyDeepBranchesIsRemoved: directories that were closed are read anew when what lies
// deep in them is gone.
func TestATreeOfManyDeepBranchesIsRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "v")
	for _, at := range []int{0, 1, 2, mostOpen - 1, mostOpen, mostOpen + 1, 2 * mostOpen} {
		above := strings.Repeat("d/", at)
		for _, branch := range []string{"a/", "b/", "z/"} {
			below := above + branch + strings.Repeat("x/", mostOpen+5)
			made(t, root, []string{below}, []string{below + "file", above + branch + "file"})
		}
	}
	open := descriptors(t)
	removal := newTree(t.Context())
	most := 0
	removal.openat2 = func(dir int, name string, how *unix.OpenHow) (int, error) {
		most = max(most, descriptors(t)-open)
		return unix.Openat2(dir, name, how)
	}
	if err := removal.removeAll(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	if most < mostOpen || most > mostOpen+5 {
		t.Errorf("%d were open at once", most)
	}
	if now := descriptors(t); now > open {
		t.Errorf("%d were open before, %d are after it", open, now)
	}
}

// descriptors is how many are open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A process outside that moves directories meanwhile gets nothing else removed.
func TestADirectoryThatIsMovedAwayMeanwhileTakesNothingElseWithIt(t *testing.T) {
	dir := t.TempDir()
	root, deep := filepath.Join(dir, "v"), strings.Repeat("d/", 2*mostOpen)
	made(t, root, []string{deep}, nil)
	made(t, dir, []string{"kept"}, []string{"kept/file"})
	removal, moved := newTree(t.Context()), false
	removal.openat2 = func(at int, name string, how *unix.OpenHow) (int, error) {
		if !moved && len(removal.closed) > 10 {
			moved = true // One whose directory above is closed.
			from := filepath.Join(root, strings.Repeat("d/", len(removal.closed)+1))
			if err := os.Rename(from, filepath.Join(dir, "kept", "d")); err != nil {
				t.Error(err)
			}
		}
		return unix.Openat2(at, name, how)
	}
	if err := removal.removeAll(root); !errors.Is(err, errMoved) || !moved {
		t.Errorf("err = %v, moved %v", err, moved)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept", "file")); err != nil {
		t.Error(err)
	}
	if err := removeTree(t.Context(), root); err != nil {
		t.Error(err)
	}
}

// Of how many directories it is known which they are is bounded: a pod makes ten million of them.
func TestATreeDeeperThanIsRememberedIsRemovedInParts(t *testing.T) {
	root := filepath.Join(t.TempDir(), "v")
	for _, branch := range []string{"a/", "b/"} {
		below := branch + strings.Repeat("d/", 5*mostOpen)
		made(t, root, []string{below}, []string{below + "file", branch + "file"})
	}
	removal := newTree(t.Context())
	removal.mostClosed = mostOpen
	most := 0
	removal.openat2 = func(dir int, name string, how *unix.OpenHow) (int, error) {
		most = max(most, len(removal.closed))
		return unix.Openat2(dir, name, how)
	}
	if err := removal.removeAll(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !os.IsNotExist(err) || most != mostOpen {
		t.Errorf("%v, %d were remembered", err, most)
	}
}

// Each branch below a directory that is just remembered would have all begin anew.
func TestBranchesBelowADirectoryThatIsJustRememberedBeginNotFromTheTopEach(t *testing.T) {
	const remembered, branches = 300, 40
	root := filepath.Join(t.TempDir(), "v")
	above, directories := strings.Repeat("d/", remembered), remembered
	for i := range branches {
		made(t, root, []string{above + strconv.Itoa(i) + strings.Repeat("/x", mostOpen+6)}, nil)
		directories += mostOpen + 7
	}
	removal, opened := newTree(t.Context()), 0
	removal.mostClosed = remembered
	removal.openat2 = func(dir int, name string, how *unix.OpenHow) (int, error) {
		opened++
		return unix.Openat2(dir, name, how)
	}
	if err := removal.removeAll(root); err != nil {
		t.Fatal(err)
	}
	if opened > 3*directories {
		t.Errorf("of %d directories %d were opened", directories, opened)
	}
}

// BenchmarkADeepTreeIsRemoved is per directory: twice as deep is not to be more for each.
func BenchmarkADeepTreeIsRemoved(b *testing.B) {
	for _, depth := range []int{1000, 10000, 100000} {
		b.Run(strconv.Itoa(depth), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				root := deepTree(b, depth)
				b.StartTimer()
				if err := removeTree(b.Context(), root); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(depth), "ns/directory")
		})
	}
}

func TestARemovalEndsThoughAFilesystemListsWhatItSaysIsNotThere(t *testing.T) {
	for name, asFile := range map[string]error{"file": unix.ENOENT, "directory": unix.EISDIR} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "tree")
			if err := os.MkdirAll(filepath.Join(root, "below", "listed"), 0o755); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			removal := newTree(ctx)
			removal.unlinkat = func(dir int, name string, how int) error {
				switch {
				case name != "listed":
					return unix.Unlinkat(dir, name, how)
				case how == 0:
					return asFile
				}
				return unix.ENOENT
			}
			err := removal.removeAll(root)
			if want := filepath.Join(root, "below"); !errors.Is(err, errListed) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want it to name %s", err, want)
			}
		})
	}
}
