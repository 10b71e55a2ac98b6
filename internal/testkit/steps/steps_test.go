package steps

import (
	"strings"
	"testing"
)

func TestASearchForEachAmongAllIsFoundAndOneLookAtEachIsNot(t *testing.T) {
	grown := Grown(t, func(n int) {
		if lookAt(n) != searchFor(n)/n {
			t.Fatal("both add up the same")
		}
	})
	if len(grown) != 1 || !strings.Contains(grown[0], "fakes.go") {
		t.Errorf("found %q, want the one search", grown)
	}
}
