package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// staleMounts says of a mount what the kernel says of an NFS file whose handle is stale.
type staleMounts struct {
	mount.Mounter
	stale string
}

func (m *staleMounts) Mounted(target string) (bool, error) {
	if target == m.stale {
		return false, &os.PathError{Op: "statx", Path: target, Err: unix.ESTALE}
	}
	return m.Mounter.Mounted(target)
}

func (m *staleMounts) Unmount(target string) error {
	if target == m.stale {
		m.stale = ""
	}
	return m.Mounter.Unmount(target)
}

// TestADeadSubPathIsMountedAnewForItsContainersNextStart: what an earlier start has mounted
// is of a server or process that is gone, or of a file that it no longer has
// (kubernetes/kubernetes#138856, #139123): the container would else never start again.
func TestADeadSubPathIsMountedAnewForItsContainersNextStart(t *testing.T) {
	for _, stale := range []bool{false, true} {
		f := onKernel(t)
		pod := podWith(emptyDirVolume("e"))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		volume, _ := f.set.HostPath("uid-1", "e")
		made(t, volume, []string{"dir"}, []string{"dir/file"})
		target, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "dir")
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Unmount(target, 0); err != nil {
			t.Fatal(err)
		}
		mountDead(t, target)
		if stale {
			f.set.deps.Mounter = &staleMounts{Mounter: f.set.deps.Mounter, stale: target}
		}
		if _, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "dir"); err != nil {
			t.Errorf("stale %v: %v", stale, err)
		}
		if data, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(data) != "mine" {
			t.Errorf("stale %v: %q, %v", stale, data, err)
		}
		if n := len(mountsBelow(t, f.root)); n != 1 {
			t.Errorf("stale %v: %d mounts, want one", stale, n)
		}
	}
}

// mountDead mounts a filesystem of a process that is gone.
func mountDead(t *testing.T, target string) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	err = unix.Mount("dead", target, "fuse.dead", 0, "rootmode=40000,user_id=0,group_id=0,fd="+strconv.Itoa(int(fuse.Fd())))
	if err := errors.Join(err, fuse.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("it is not dead: %v", err)
	}
}
