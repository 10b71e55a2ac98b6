package uds

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestListenMakesDirectoryAndSocketForTheGroupOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "polylet", "podsync.sock")
	l, err := Listen(path, strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for p, want := range map[string]os.FileMode{filepath.Dir(path): 0o750, path: 0o660} {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %o", p, info.Mode(), err, want)
		}
	}
}

func TestListenReplacesADeadSocketButNotALiveOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats.sock")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()

	live, err := Listen(path, "")
	if err != nil {
		t.Fatalf("dead socket in the way: %v", err)
	}
	defer live.Close()
	if _, err := Listen(path, ""); err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Fatalf("live socket in the way: %v", err)
	}
}

func TestListenRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "probes.sock")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, ""); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("file in the way: %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "precious" {
		t.Fatal("the file was touched")
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(open, "x.sock"), ""); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Fatalf("directory open to everybody: %v", err)
	}
	if _, err := Listen(filepath.Join(dir, "y.sock"), "no-such-group-here"); err == nil || !strings.Contains(err.Error(), "groupadd") {
		t.Fatalf("unknown group: %v", err)
	}
}

func TestADirectoryThatOthersMayChangeIsNoPlaceForSockets(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]struct {
		path string
		do   func(string) error
		want string
	}{
		"everybody's":        {"", func(d string) error { return os.Chmod(d, 0o777) }, "chmod o-w"},
		"everybody's sticky": {"", func(d string) error { return os.Chmod(d, 0o777|os.ModeSticky) }, "chmod o-w"},
		"a link":             {link, func(string) error { return nil }, "not a directory"},
		"a stranger's":       {"", func(d string) error { return os.Chown(d, 60990, -1) }, "belongs to uid 60990"},
		"a group's":          {"", func(d string) error { return errors.Join(os.Chown(d, -1, 60990), os.Chmod(d, 0o770)) }, "chmod g-w"},
	} {
		if os.Geteuid() != 0 && strings.HasSuffix(change.want, "60990") {
			continue // only root gives things away
		}
		path := change.path
		if path == "" {
			path = t.TempDir()
		}
		if err := change.do(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(filepath.Join(path, "x.sock"), ""); err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("%s: %v, want %q", name, err, change.want)
		}
	}
}

func TestASocketIsInItsOwnDirectoryWhereThereIsOne(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "podsync.d"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := Path(dir, "podsync"); got != dir+"/podsync.d/podsync.sock" {
		t.Errorf("podsync: %s", got)
	}
	if got := Path(dir, "stats"); got != dir+"/stats.sock" {
		t.Errorf("stats: %s", got)
	}
}
