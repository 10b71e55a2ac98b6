package eintr

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/testkit/fakefuse"
)

func TestACallIsRepeatedUntilItIsNotInterrupted(t *testing.T) {
	for _, last := range []error{nil, unix.EIO} {
		calls := 0
		call := func() error {
			if calls++; calls < 3 {
				return &os.PathError{Op: "x", Path: "y", Err: unix.EINTR}
			}
			return last
		}
		if err := Do(call); !errors.Is(err, last) || calls != 3 {
			t.Errorf("after %d calls: %v, want %v after 3", calls, err, last)
		}
		calls = 0
		got, err := Get(func() (int, error) { err := call(); return calls, err })
		if got != 3 || !errors.Is(err, last) {
			t.Errorf("after %d calls: %v, want %v after 3", got, err, last)
		}
	}
}

func TestAServerThatAnswersNothingElseIsNotAskedForEver(t *testing.T) {
	calls := 0
	if err := Do(func() error { calls++; return unix.EINTR }); !errors.Is(err, unix.EINTR) || calls != often {
		t.Errorf("after %d calls: %v, want EINTR after %d", calls, err, often)
	}
}

func TestNoCallShowsThatAServerWasInterrupted(t *testing.T) {
	s := fakefuse.Mount(t)
	if err := os.Symlink("dir", filepath.Join(s.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	s.Interrupt(true)
	const path = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	top, err := Open(s.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	var st unix.Stat_t
	var fs unix.Statfs_t
	opened := func(fd int, err error) error {
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}
	only := func(_ int, err error) error { return err }
	dir := filepath.Join(s.Dir, "dir")
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"mkdirat", func() error { return Mkdirat(top, "dir", 0o700) }},
		{"fstat", func() error { return Fstat(top, &st) }},
		{"fstatat", func() error { return Fstatat(top, "link", &st, unix.AT_SYMLINK_NOFOLLOW) }},
		{"openat", func() error { return opened(Openat(top, "dir", path, 0)) }},
		{"openat2", func() error { return opened(Openat2(top, "dir", &unix.OpenHow{Flags: path})) }},
		{"open of a file that is made", func() error { return opened(Openat(top, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)) }},
		{"readlinkat", func() error { return only(Readlinkat(top, "link", make([]byte, 100))) }},
		{"fchownat", func() error { return Fchownat(top, "dir", -1, 7, unix.AT_SYMLINK_NOFOLLOW) }},
		{"chmod", func() error { return Chmod(dir, 0o711) }},
		{"statfs", func() error { return Statfs(s.Dir, &fs) }},
		{"getdents", func() error { return only(ReadDirent(top, make([]byte, 1000))) }},
	} {
		if err := step.call(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	if at, err := Seek(top, 0, 0); at != 0 || err != nil {
		t.Errorf("lseek: %d, %v", at, err)
	}
	if gid, mode := s.Group("dir"); gid != 7 || mode != 0o711 {
		t.Errorf("the directory is group %d's with mode %v, want 7's with rwx--x--x", gid, mode)
	}
	for _, kind := range []string{"lookup", "mkdir", "mknod", "open", "opendir", "readdir", "getattr", "setattr", "readlink", "statfs"} {
		if s.Interrupted()[kind] == 0 {
			t.Errorf("no %s was interrupted: %v", kind, s.Interrupted())
		}
	}
}
