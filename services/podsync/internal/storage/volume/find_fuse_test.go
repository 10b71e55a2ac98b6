package volume

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakefuse"
)

// What processes do for podsync with a server's files, which may answer EINTR to what a signal
// has interrupted, as the Go runtime's own do.
func TestAServerThatAnswersEINTRIsAskedAgain(t *testing.T) {
	s := fakefuse.Mount(t)
	if err := os.MkdirAll(filepath.Join(s.Dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	linked(t, s.Dir, map[string]string{"link": "a/file", "new": "a/made"})
	if err := os.WriteFile(filepath.Join(s.Dir, "a/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Interrupt(true)
	for _, step := range []struct {
		kind v1.HostPathType
		path string
	}{
		{v1.HostPathDirectory, "a/b"},
		{v1.HostPathDirectoryOrCreate, "a/c/d"},
		{v1.HostPathFile, "link"},
		{v1.HostPathFileOrCreate, "new"}, // also when the server has made it and a signal came before it was open
	} {
		if err := checkHostPath(&v1.HostPathVolumeSource{Path: filepath.Join(s.Dir, step.path), Type: &step.kind}, findByPath); err != nil {
			t.Errorf("%s %s: %v", step.kind, step.path, err)
		}
	}
	for _, path := range []string{"a/b", "e/f", "e/g"} {
		found, err := findSubPath(s.Dir, path, false)
		if err != nil {
			t.Errorf("subPath %s: %v", path, err)
			continue
		}
		_ = found.Close()
	}
	for _, kind := range []string{"lookup", "mkdir", "mknod", "open", "readlink", "getattr"} {
		if s.Interrupted()[kind] == 0 {
			t.Errorf("no %s was interrupted: %v", kind, s.Interrupted())
		}
	}
}
