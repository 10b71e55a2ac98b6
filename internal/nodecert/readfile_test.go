package nodecert

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Who owns the directory may put a link to a device there, and root reads it: opening
// alone may start a watchdog or let a writer of a pipe go on.
func TestWhatIsNoRegularFileIsNotEvenOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(link); !errors.Is(err, ErrDamaged) {
		t.Errorf("a pipe: %v", err)
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("it was opened: %d bytes of events, %v", n, err)
	}
	for _, path := range []string{"/proc/self/status", "/dev/zero", t.TempDir()} {
		if _, err := ReadFile(path); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := ReadFile(link + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(file); err != nil || string(data) != "text" {
		t.Errorf("a file: %q, %v", data, err)
	}
}

// A link may lead to a file of somebody else's, which is half written for a moment.
func TestADamagedFileElsewhereIsLeftAlone(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "theirs.pem")
	if err := os.WriteFile(elsewhere, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Store{Dir: t.TempDir(), Prefix: Client}
	if err := os.Symlink(elsewhere, s.CurrentPath()); err != nil {
		t.Fatal(err)
	}
	aside, now, err := s.Mend(nil)
	if aside != "" || now != nil || err != nil {
		t.Errorf("%q, %v, %v", aside, now, err)
	}
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != "half" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Lstat(s.CurrentPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link stays: %v", err)
	}
}
