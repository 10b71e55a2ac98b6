package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"
)

// What cleans up below /run, or a person, takes a socket away, or all of them; what is
// started next is reached again.
func TestASocketThatSomebodyRemovedIsMadeAnewForTheNextStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "polylet")
	s := &nodeSocket{service: "stats", path: filepath.Join(dir, "stats.sock"), gid: -1, log: klog.Background()}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	defer func() { s.close() }()
	reached := func(what string) *os.File {
		t.Helper()
		passed, err := s.current()
		if err != nil || len(passed) != 1 || passed[0].Name != "stats" {
			t.Fatalf("%s: %+v, %v", what, passed, err)
		}
		conn, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		conn.Close()
		return passed[0].File
	}
	first := reached("as it was made")
	if again := reached("when nobody has touched it"); again != first {
		t.Error("a socket that stands is made anew; clients that wait on it would fail")
	}
	for what, remove := range map[string]func() error{
		"the socket is gone":        func() error { return os.Remove(s.path) },
		"the directory is gone":     func() error { return os.RemoveAll(dir) },
		"another dead socket there": func() error { return another(s.path) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		reached(what)
	}
}

// another replaces a socket by one that nobody serves any more.
func another(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}
