package probe

import (
	"fmt"
	"testing"
)

// Events and series are found by these words.
func TestTypesAndOutcomesAreSpeltAsTheKubeletSpellsThem(t *testing.T) {
	for thing, want := range map[fmt.Stringer]string{
		Liveness: "Liveness", Readiness: "Readiness", Startup: "Startup", Type(9): "Type(9)",
		Success: "success", Failure: "failure", Unknown: "unknown",
	} {
		if got := thing.String(); got != want {
			t.Errorf("%#v is %q, want %q", thing, got, want)
		}
	}
}
