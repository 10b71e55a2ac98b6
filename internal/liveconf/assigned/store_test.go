package assigned

import (
	"fmt"
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
