// Package golden compares a test's output with a file that is kept beside the test. It
// owns the flag -update, which writes the files anew, and must never be imported by
// anything but tests.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The flag has to exist before the testing package parses the command line.
var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// Equal fails the test when got differs from the file, and shows where. With -update it
// writes the file, and its directory, instead.
func Equal(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		write(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the golden file %s (go test -update writes it): %v", file, err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("output differs from %s; if the change is meant, run go test -update (-want +got):\n%s", file, diff)
	}
}

func write(t testing.TB, file string, got []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatalf("make the directory of the golden file: %v", err)
	}
	if err := os.WriteFile(file, got, 0o644); err != nil {
		t.Fatalf("write the golden file: %v", err)
	}
}

// Lines fails the test when a line of the file is not among got's. Further
// lines in got are only told: whoever adds one need not know of the file, and
// `make docs` writes it. With -update it writes the file.
func Lines(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		write(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the golden file %s (go test -update writes it): %v", file, err)
	}
	have := strings.Split(string(got), "\n")
	known := strings.Split(string(want), "\n")
	for _, line := range known {
		if !slices.Contains(have, line) {
			t.Errorf("%s: %q is gone or has changed; if that is meant, make docs writes the file", file, line)
		}
	}
	for _, line := range have {
		if !slices.Contains(known, line) {
			t.Logf("%s does not have %q yet; make docs adds it", file, line)
		}
	}
}
