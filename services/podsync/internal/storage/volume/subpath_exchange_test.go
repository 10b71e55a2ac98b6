package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// raceFor is how long names are exchanged: a minute where there is time (POLYLET_LONG_TESTS).
func raceFor() time.Duration {
	if os.Getenv("POLYLET_LONG_TESTS") != "" {
		return time.Minute
	}
	return time.Second
}

// exchanging has a directory of a volume and a link that leads out of it exchange their names
// without end, as a container can (CVE-2021-25741), while find looks dir/sub and what is to be
// made in dir up, for so long. It says what came of it outside; find is to return what it found.
func exchanging(t *testing.T, volume string, least time.Duration, find func(path string) (*os.File, error)) error {
	t.Helper()
	outside := t.TempDir()
	made(t, "", []string{filepath.Join(volume, "dir/sub"), filepath.Join(outside, "sub")}, nil)
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	inside, err := os.Stat(filepath.Join(volume, "dir/sub"))
	if err != nil {
		t.Fatal(err)
	}
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "dir"), unix.AT_FDCWD, filepath.Join(volume, "link"), unix.RENAME_EXCHANGE)
	}
	if err := exchange(); err != nil {
		t.Skipf("this file system cannot exchange names: %v", err)
	}
	stop, exchanged := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				exchanged <- n
				return
			default:
				_ = exchange()
			}
		}
	}()
	looked, found := 0, 0
	defer func() {
		close(stop)
		t.Logf("looked up %d times, found %d times, exchanged %d times", looked, found, <-exchanged)
	}()
	for began := time.Now(); time.Since(began) < least || found == 0; looked++ {
		if time.Since(began) > least+time.Minute {
			return errors.New("it was never found")
		}
		path := "dir/sub"
		if looked%8 == 7 {
			path = fmt.Sprintf("dir/new%d/sub", looked%800)
		}
		f, err := find(path)
		if err != nil {
			continue // it led out, or was not there
		}
		info, err := f.Stat()
		_ = f.Close()
		if err != nil || path == "dir/sub" && !os.SameFile(info, inside) {
			return fmt.Errorf("%s is %v outside of the volume, %w", path, info, err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			return fmt.Errorf("outside are %v, %w", entries, err)
		}
		found++
	}
	return nil
}

func TestALinkThatIsSwappedInWhileASubPathIsLookedUpLeadsNowhere(t *testing.T) {
	for name, others := range waysToASubPath() {
		t.Run(name, func(t *testing.T) {
			f := onKernel(t)
			f.set.deps.Apart = others
			volume := t.TempDir()
			find := f.set.finderOfSubPaths()
			if err := exchanging(t, volume, raceFor(), func(path string) (*os.File, error) { return find(volume, path, false) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestALinkThatIsSwappedInWhileASubPathIsMountedLeadsNowhere(t *testing.T) {
	for name, others := range waysToASubPath() {
		t.Run(name, func(t *testing.T) {
			f := onKernel(t)
			f.set.deps.Apart = others
			pod := podWith(emptyDirVolume("e"))
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			volume, _ := f.set.HostPath("uid-1", "e")
			err := exchanging(t, volume, raceFor(), func(path string) (*os.File, error) {
				at, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", path)
				if err != nil {
					return nil, err
				}
				found, err := os.Open(at)
				return found, errors.Join(err, f.set.deps.Mounter.Unmount(at))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatIsCheckedBeforeItIsOpenedIsCaughtByTheExchange: the two above would see it.
func TestWhatIsCheckedBeforeItIsOpenedIsCaughtByTheExchange(t *testing.T) {
	volume := t.TempDir()
	err := exchanging(t, volume, time.Minute, func(path string) (*os.File, error) {
		path = filepath.Join(volume, path)
		found, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(found, volume) {
			return nil, os.ErrPermission
		}
		return os.Open(path)
	})
	if err == nil {
		t.Error("nothing was seen")
	}
	t.Log(err)
}

// What was a directory of the volume when it was looked who is asked for the way is a link to
// what is mounted in it when that is gone.
func TestALinkThatIsSwappedInAsksNobodyWhoIsMountedInTheVolume(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	at := filepath.Join(volume, "mnt")
	made(t, volume, []string{"mnt"}, nil)
	mountSilent(t, at)
	made(t, volume, []string{"dir"}, nil)
	if err := os.Symlink("mnt", filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	f.set.deps.Mounter = &changing{f.set.deps.Mounter}
	for path, far := range map[string]bool{"link/a": true, "mnt": true, "dir/a": false} {
		others := &processes{do: func(context.Context) error { return nil }}
		f.set.deps.Apart = others
		done := make(chan error, 1)
		go func() {
			_, err := f.set.SubPath(t.Context(), pod, "main", 0, "e", path)
			done <- err
		}()
		select {
		case err := <-done:
			if asked := len(others.all()); err != nil || (asked == 1) != far {
				t.Errorf("%s: %d other processes were asked: %v", path, asked, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: it is waited for who answers", path)
		}
	}
}

// changing says of each path that nobody is asked for it, which is so no more a moment later.
type changing struct{ mount.Mounter }

func (changing) AskedAt(string) (string, error) { return "", nil }
