package assigned

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
)

func TestABoundedNumberOfBadDocumentsIsRemembered(t *testing.T) {
	s := &store{dir: t.TempDir(), node: "n", log: logr.Discard()}
	for i := range mostBad + 5 {
		if err := s.setBad(doc("1", fmt.Sprintf("maxPods: %d\n", i)), "why", "file"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.badFiles()); n != mostBad {
		t.Errorf("%d are kept", n)
	}
	if why, file := s.bad(doc("9", fmt.Sprintf("maxPods: %d\n", mostBad+4))); why != "why" || file != "file" {
		t.Errorf("the newest: %q %q", why, file)
	}
	s.forgetBad()
	if n := len(s.badFiles()); n != 0 {
		t.Errorf("%d are kept after they were forgotten", n)
	}
}
