package volume

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who may write into a volume that is shared with others exchanges the directory that was just
// made for a subPath with somebody's private one.
func TestADirectoryThatIsPutInTheNewOnesPlaceKeepsItsMode(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o777); err != nil { //nolint:gosec // As a volume has it.
		t.Fatal(err)
	}
	victim, made := filepath.Join(root, "victim"), filepath.Join(root, "made")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	private, err := os.Open(victim)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = private.Close() }()
	var over atomic.Bool
	var exchanges sync.WaitGroup
	defer exchanges.Wait()
	defer over.Store(true)
	for range 3 {
		exchanges.Go(func() {
			for !over.Load() {
				if unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, victim, unix.RENAME_EXCHANGE) == nil {
					time.Sleep(50 * time.Microsecond) // else it is back in its place at once
				}
			}
		})
	}
	tries := 0
	for began := time.Now(); time.Since(began) < time.Second; tries++ {
		if f, err := openBeneath(root, "made"); err == nil {
			_ = f.Close()
		}
		st, err := private.Stat()
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Fatalf("after %d tries the private directory has mode %o, %v", tries, st.Mode().Perm(), err)
		}
		for _, p := range []string{made, victim} { // whichever is not the private one goes
			if other, err := os.Lstat(p); err == nil && !os.SameFile(other, st) {
				_ = os.Remove(p)
			}
		}
		if _, err := os.Lstat(victim); err != nil {
			_ = os.Rename(made, victim)
		}
	}
	if tries == 0 {
		t.Error("nothing was tried")
	}
}

func TestADirectoryForASubPathHasTheVolumesModeWhateverTheUmask(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o777|os.ModeSticky|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	f, err := openBeneath(root, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, dir := range []string{"a", "a/b"} {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || info.Mode() != os.ModeDir|0o777|os.ModeSticky|os.ModeSetgid {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if info, err := os.Create(filepath.Join(root, "beside")); err != nil {
		t.Fatal(err)
	} else if st, err := info.Stat(); err != nil || st.Mode().Perm() == 0o666 || info.Close() != nil {
		t.Errorf("the process has lost its umask: %v, %v", st.Mode(), err)
	}
}

// Whoever makes it may be killed at any moment.
func TestADirectoryForASubPathHasItsModeFromTheStart(t *testing.T) {
	volume := t.TempDir()
	if err := os.Chmod(volume, 0o777); err != nil { //nolint:gosec // As a volume has it.
		t.Fatal(err)
	}
	events, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Skipf("there is no inotify: %v", err)
	}
	defer func() { _ = unix.Close(events) }()
	if _, err := unix.InotifyAddWatch(events, volume, unix.IN_CREATE|unix.IN_ATTRIB); err != nil {
		t.Fatal(err)
	}
	f, err := openBeneath(volume, "made")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var seen [4096]byte
	n, err := unix.Read(events, seen[:])
	if err != nil || n < unix.SizeofInotifyEvent {
		t.Fatalf("nobody saw it made: %v", err)
	}
	if all := n / (unix.SizeofInotifyEvent + 16); all != 1 {
		t.Errorf("it was changed %d times after it was made", all-1)
	}
	if info, err := os.Stat(filepath.Join(volume, "made")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

// NFS exports do by default: what root makes is nobody's.
func TestADirectoryOnAServerThatSquashesRootHasTheVolumesMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's directories are made by root")
	}
	volume := t.TempDir()
	if err := os.Chmod(volume, 0o777); err != nil { //nolint:gosec // As a volume has it.
		t.Fatal(err)
	}
	dir, err := os.Open(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	const nobody = 65534
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // The thread is nobody's, and ends with this.
		_, err := unix.SetfsgidRetGid(nobody)
		if err == nil {
			_, err = unix.SetfsuidRetUid(nobody)
		}
		if err == nil {
			err = mkdirExactly(dir, "data", 0o777)
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(volume, "data"), &st); err != nil || st.Uid != nobody || st.Mode&0o777 != 0o777 {
		t.Errorf("it is %d's with mode %o, %v", st.Uid, st.Mode, err)
	}
}
