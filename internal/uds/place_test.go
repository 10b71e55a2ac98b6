package uds

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestALinkInTheSocketsPlaceIsNotFollowed has a pod whose hostPath is the directory of
// the Pods API, as that of its clients is, put a link in the socket's place once it is
// bound. podsync tries again for ever, so the pod may, too.
func TestALinkInTheSocketsPlaceIsNotFollowed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods-api")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(victim, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, link, done, gone := filepath.Join(dir, "s.sock"), filepath.Join(dir, "link"), make(chan struct{}), make(chan struct{})
	defer func() { close(done); <-gone }()
	go func() { // the pod
		defer close(gone)
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Symlink(victim, link)
			if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
				_ = os.Rename(link, path)
			}
			if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
				_ = os.Remove(path)
			}
		}
	}()
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		l, err := Listen(path, "")
		if err == nil {
			_ = l.Close()
		}
		if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o755 {
			t.Fatalf("the host's file has mode %v (%v)", info.Mode(), err)
		}
	}
}

func TestWhatHasReplacedWhatWasMadeKeepsItsMode(t *testing.T) {
	dir := t.TempDir()
	file, link, away := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "away")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(away, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(away, link); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]os.FileMode{file: os.ModeSocket, link: os.ModeDir, away: os.ModeSocket} {
		if err := setOwner(path, kind, 0o777, -1); err == nil || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("%s: %v", path, err)
		}
	}
	for path, want := range map[string]os.FileMode{file: 0o600, away: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v)", path, info.Mode(), err)
		}
	}
}

func TestALinkToASocketIsNoDeadSocket(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.sock"), filepath.Join(dir, "s.sock")
	dead, err := net.Listen("unix", real)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(link, ""); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a link in the way: %v", err)
	}
	for _, path := range []string{real, link} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
