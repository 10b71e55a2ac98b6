package volume

import (
	"errors"
	"os"
	"path/filepath"
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
					return (&tree{ctx: t.Context(), openat2: kernel, setFlags: setFlags, renameat2: unix.Renameat2}).removeAll(filepath.Join(dir, "tree"))
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
						return (&tree{ctx: t.Context(), openat2: kernel, setFlags: setFlags, renameat2: unix.Renameat2}).removeAll(filepath.Join(dir, "tree"))
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

func TestAVeryDeepTreeIsRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 2100 // longer than any path can be, which is 4096 bytes
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
	if err := removeTree(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestADeepTreeIsRemovedWhoseTopPassesAProjectOn: its owner may have done that; the kernel moves
// nothing of another project into it.
func TestADeepTreeIsRemovedWhoseTopPassesAProjectOn(t *testing.T) {
	for _, can := range []bool{true, false} {
		root, passes := filepath.Join(t.TempDir(), "deep"), true
		if err := os.MkdirAll(filepath.Join(root, strings.Repeat("d/", maxDepth+10)), 0o755); err != nil {
			t.Fatal(err)
		}
		removal := newTree(t.Context())
		removal.renameat2 = func(olddir int, old string, newdir int, name string, flags uint) error {
			if passes {
				return unix.EXDEV
			}
			return unix.Renameat2(olddir, old, newdir, name, flags)
		}
		removal.passNoneOn = func(dir *os.File) error {
			if dir != removal.top || !can {
				return unix.EPERM
			}
			passes = false
			return nil
		}
		err := removal.removeAll(root)
		if _, there := os.Lstat(root); (err == nil) != can || os.IsNotExist(there) != can {
			t.Errorf("can %v: %v, %v", can, err, there)
		}
		if !can && !errors.Is(err, unix.EXDEV) {
			t.Errorf("the error is %v", err)
		}
	}
}
