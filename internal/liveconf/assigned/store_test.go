package assigned

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/fsatomic"
)

func TestABoundedNumberOfBadDocumentsIsRemembered(t *testing.T) {
	s := &store{dir: t.TempDir(), node: "n", log: logr.Discard()}
	for i := range mostBad + 5 {
		if err := s.setBad(doc("1", fmt.Sprintf("maxPods: %d\n", i)), "why", "file"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(fsatomic.Oldest(s.dir, badPrefix+"*.json")); n != mostBad {
		t.Errorf("%d are kept", n)
	}
	if why, file := s.bad(doc("9", fmt.Sprintf("maxPods: %d\n", mostBad+4))); why != "why" || file != "file" {
		t.Errorf("the newest: %q %q", why, file)
	}
	s.forgetBad()
	if n := len(fsatomic.Oldest(s.dir, badPrefix+"*.json")); n != 0 {
		t.Errorf("%d are kept after they were forgotten", n)
	}
}

func TestWhatIsAssignedAfterTheDirectoryWasRemovedIsKeptAndOnlyForRoot(t *testing.T) {
	s := &store{dir: filepath.Join(t.TempDir(), "kubelet", "dynamic"), node: "n", log: logr.Discard()}
	d := doc("1", "maxPods: 20\n")
	for name, write := range map[string]func() error{
		assignedFile: func() error { return s.write(assignedFile, d) },
		badName(d):   func() error { return s.setBad(d, "why", "file") },
	} {
		if err := write(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if kept, found := s.read(name); !found || *kept != *d {
			t.Errorf("%s: %v", name, kept)
		}
		if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", name, info, err)
		}
		if err := os.RemoveAll(filepath.Dir(s.dir)); err != nil {
			t.Fatal(err)
		}
	}
}
