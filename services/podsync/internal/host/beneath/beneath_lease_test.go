package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAFileUnderALeaseIsNotWaitedFor: who owns a file may take a lease on it, and
// then the kernel has who opens it wait for 45 seconds, in which he holds up
// everybody whose work is behind his: the reader of the runtime's events is one.
func TestAFileUnderALeaseIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("said"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases on this filesystem: %v", err)
	}
	for name, open := range map[string]func() (*os.File, error){
		"Open":       func() (*os.File, error) { return Open(dir, path) },
		"OpenInside": func() (*os.File, error) { return OpenInside(dir, "f") },
	} {
		opened := make(chan error, 1)
		go func() {
			f, err := open()
			if err == nil {
				_ = f.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			if !errors.Is(err, unix.EAGAIN) {
				t.Errorf("%s: %v, want that it cannot be had now", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s waits for who holds the lease", name)
			if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
				t.Fatal(err)
			}
			<-opened
		}
	}
}
