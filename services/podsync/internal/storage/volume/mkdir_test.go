package volume

import (
	"os"
	"path/filepath"
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
	for began := time.Now(); time.Since(began) <= 2*coarse; {
		time.Sleep(coarse) // It is not as new as that.
	}
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
