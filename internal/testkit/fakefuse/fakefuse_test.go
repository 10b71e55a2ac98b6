package fakefuse

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEachQuestionIsAnsweredWithEINTROnce(t *testing.T) {
	s := Mount(t)
	if err := os.MkdirAll(filepath.Join(s.Dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b", filepath.Join(s.Dir, "a/link")); err != nil {
		t.Fatal(err)
	}
	s.Interrupt(true)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(s.Dir, "a"), &st); !errors.Is(err, unix.EINTR) {
		t.Errorf("the first answer is %v, want EINTR", err)
	}
	// Package os asks again.
	entries, err := os.ReadDir(filepath.Join(s.Dir, "a"))
	if err != nil || len(entries) != 2 {
		t.Errorf("a has %v, %v, want b and link", entries, err)
	}
	if err := os.Lchown(filepath.Join(s.Dir, "a"), -1, 7); err != nil {
		t.Error(err)
	}
	if gid, mode := s.Group("a"); gid != 7 || mode != 0o755 {
		t.Errorf("a is group %d's with mode %v, want 7's with rwxr-xr-x", gid, mode)
	}
	for _, kind := range []string{"lookup", "opendir", "readdir", "setattr"} {
		if s.Interrupted()[kind] == 0 {
			t.Errorf("none of kind %s was interrupted: %v", kind, s.Interrupted())
		}
	}
	s.Interrupt(false)
	if err := unix.Stat(filepath.Join(s.Dir, "a/link"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Errorf("a/link leads to mode %o, %v, want a directory", st.Mode, err)
	}
}
