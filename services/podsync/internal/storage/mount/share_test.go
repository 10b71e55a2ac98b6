package mount

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// privately runs do in a mount namespace of its own, in which nothing is shared.
func privately(t *testing.T, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

func mountsBelow(t *testing.T, dir string) (all []*mountinfo.Info) {
	t.Helper()
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Error(err)
	}
	return all
}

func TestADirectoryOnAPrivateMountIsSharedOnce(t *testing.T) {
	root := t.TempDir()
	privately(t, func() {
		k := New(Config{})
		dir, link := filepath.Join(root, "kubelet"), filepath.Join(root, "link")
		volume := filepath.Join(dir, "pods", "volume")
		if err := os.MkdirAll(volume, 0o755); err != nil {
			t.Error(err)
		}
		if err := os.Symlink(dir, link); err != nil {
			t.Error(err)
		}
		if err := k.Tmpfs(volume, 1<<20); err != nil { // of a podsync before
			t.Error(err)
			return
		}
		if err := os.WriteFile(filepath.Join(volume, "file"), nil, 0o600); err != nil {
			t.Error(err)
		}
		for i, want := range []bool{true, false, false} {
			if changed, err := k.Share(link); err != nil || changed != want {
				t.Errorf("call %d: changed %v, %v", i, changed, err)
			}
		}
		if on, err := mountOf(dir); err != nil || on.Mountpoint != dir || !isShared(on) {
			t.Errorf("the directory is on %+v, %v", on, err)
		}
		if on, err := mountOf(volume); err != nil || on.Mountpoint != volume || !isShared(on) {
			t.Errorf("what was mounted there is on %+v, %v", on, err)
		}
		if _, err := os.Stat(filepath.Join(volume, "file")); err != nil {
			t.Errorf("what was mounted there is hidden: %v", err)
		}
		if on, err := mountOf(root); err != nil || isShared(on) {
			t.Errorf("what is around it is shared, too: %+v, %v", on, err)
		}
	})
}

func TestAMountPointIsSharedWithoutAnotherMount(t *testing.T) {
	root := t.TempDir()
	privately(t, func() {
		k := New(Config{})
		if err := k.Bind(root, root); err != nil { // as far as a podsync came that was killed
			t.Error(err)
			return
		}
		if changed, err := k.Share(root); err != nil || !changed {
			t.Errorf("changed %v, %v", changed, err)
		}
		if on, err := mountOf(root); err != nil || !isShared(on) || len(mountsBelow(t, root)) != 1 {
			t.Errorf("on %+v, %v; mounts %v", on, err, mountsBelow(t, root))
		}
	})
}

func TestADirectoryThatIsNotThereIsNotShared(t *testing.T) {
	if changed, err := New(Config{}).Share(filepath.Join(t.TempDir(), "not-there")); err == nil || changed {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// What was mounted before must not stay below the directory's own mount as well: nobody
// reaches it there, its memory is not given back, and the kernel removes no directory
// that something is mounted on in the caller's namespace.
func TestWhatWasMountedBeforeItWasSharedCanBeTakenDown(t *testing.T) {
	root := t.TempDir()
	privately(t, func() {
		k := New(Config{})
		dir := filepath.Join(root, "kubelet")
		volume, inner := filepath.Join(dir, "pods", "a volume"), filepath.Join(dir, "pods", "a volume", "inner")
		if err := os.MkdirAll(volume, 0o755); err != nil {
			t.Error(err)
		}
		for range 2 { // one on the other
			if err := k.Tmpfs(volume, 1<<20); err != nil {
				t.Error(err)
				return
			}
		}
		// A driver's own mounts may be shared: their copies must not end with them.
		if err := unix.Mount("", volume, "", unix.MS_SHARED, ""); err != nil {
			t.Error(err)
		}
		if err := os.Mkdir(inner, 0o755); err != nil {
			t.Error(err)
		}
		if err := k.Tmpfs(inner, 1<<20); err != nil {
			t.Error(err)
			return
		}
		if err := os.WriteFile(filepath.Join(inner, "file"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if changed, err := k.Share(dir); err != nil || !changed {
			t.Errorf("changed %v, %v", changed, err)
		}
		if _, err := os.Stat(filepath.Join(inner, "file")); err != nil {
			t.Errorf("what was mounted there is hidden: %v", err)
		}
		if all := mountsBelow(t, dir); len(all) != 4 {
			t.Errorf("%d mounts, want the directory and three below it: %v", len(all), all)
		}
		for _, target := range []string{inner, volume, volume} {
			if err := k.Unmount(target); err != nil {
				t.Error(err)
			}
		}
		if err := os.Remove(volume); err != nil {
			t.Errorf("the volume's directory cannot be removed: %v", err)
		}
	})
}
