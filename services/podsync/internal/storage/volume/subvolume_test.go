package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const makeSubvolume = 0x5000940e

// onBtrfs is a directory on a filesystem of that kind, which is made in a file.
func onBtrfs(t *testing.T) string {
	t.Helper()
	onKernel(t)
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil || !strings.Contains(string(kinds), "\tbtrfs\n") {
		t.Skip("this kernel has no btrfs")
	}
	image, at := filepath.Join(t.TempDir(), "btrfs"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.btrfs", "-q", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // A test's own.
			t.Fatalf("%v: %s, %v", args, out, err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	return at
}

func newSubvolume(parent, name string) error {
	dir, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer dir.Close()
	var args struct {
		_    int64
		name [4088]byte
	}
	copy(args.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), makeSubvolume, uintptr(unsafe.Pointer(&args))); errno != 0 { //nolint:gosec // As ioctl(2) wants it.
		return errno
	}
	return nil
}

// emptyDirOn is a directory that everybody may write to.
func emptyDirOn(t *testing.T, at string) string {
	t.Helper()
	root := filepath.Join(at, "emptydir")
	if err := errors.Join(os.Mkdir(root, 0o700), os.Chmod(root, 0o777)); err != nil { //nolint:gosec // As an emptyDir is.
		t.Fatal(err)
	}
	return root
}

// Whoever may write to an emptyDir may have subvolumes in it, and out of one nothing is moved.
func TestADeepTreeOfSubvolumesIsRemoved(t *testing.T) {
	root := emptyDirOn(t, onBtrfs(t))
	deep := strings.Repeat("d/", mostOpen+10)
	err := func() error {
		for path, i := root, 0; i < 3; i++ {
			below := filepath.Join(path, "s", deep)
			if err := errors.Join(newSubvolume(path, "s"), os.MkdirAll(below, 0o755), os.WriteFile(filepath.Join(below, "file"), []byte("x"), 0o600)); err != nil { //nolint:gosec // As a pod would.
				return err
			}
			path = below
		}
		return nil
	}()
	if err != nil {
		t.Fatal(err)
	}
	if err := removeTree(t.Context(), root); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

// Its owner may have it only read. A kubelet fails at such a pod for ever.
func TestASubvolumeThatIsOnlyReadIsRemoved(t *testing.T) {
	root := emptyDirOn(t, onBtrfs(t))
	err := func() error {
		at := filepath.Join(root, "s")
		err := errors.Join(newSubvolume(root, "s"), os.MkdirAll(filepath.Join(at, "d"), 0o755), os.WriteFile(filepath.Join(at, "d", "file"), nil, 0o600)) //nolint:gosec // As a pod would.
		if err != nil {
			return err
		}
		dir, err := os.Open(at)
		if err != nil {
			return err
		}
		defer dir.Close()
		flags := uint64(readOnly)
		return subvolume(dir, setSubvolume, &flags)
	}()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "s", "d", "file")); !errors.Is(err, unix.EROFS) {
		t.Fatalf("it is not only read: %v", err)
	}
	if err := removeTree(t.Context(), root); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}
