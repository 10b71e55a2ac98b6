package ownership

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/polylet/polylet/internal/testkit/fakefuse"
)

// The Go runtime interrupts threads, its own walk's, too, and a FUSE server may then say so.
func TestFilesOfAFUSEServerThatAnswersEINTRAreGiven(t *testing.T) {
	s := fakefuse.Mount(t)
	var paths [][]string
	deep := []string{}
	for range mostOpen + 3 { // those above are closed, and opened again
		deep = append(deep, "d")
		paths = append(paths, slices.Clone(deep), append(slices.Clone(deep), "file"))
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, filepath.Join(deep...)), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if name := filepath.Join(s.Dir, filepath.Join(path...)); path[len(path)-1] == "file" {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Interrupt(true)
	group := int64(4242)
	change := Change{Group: &group, OnMismatch: true, Skip: func(err error) { t.Error(err) }}
	if err := change.Apply(t.Context(), s.Dir); err != nil {
		t.Error(err)
	}
	for _, path := range append(paths, nil) {
		want := os.FileMode(0o770)
		if len(path) > 0 && path[len(path)-1] == "file" {
			want = 0o660
		}
		if gid, mode := s.Group(path...); gid != 4242 || mode != want {
			t.Errorf("%v is group %d's with mode %v, want 4242's with %v", path, gid, mode, want)
		}
	}
	for _, kind := range []string{"lookup", "opendir", "readdir", "getattr", "setattr"} {
		if s.Interrupted()[kind] == 0 {
			t.Errorf("no %s was interrupted: %v", kind, s.Interrupted())
		}
	}
}
