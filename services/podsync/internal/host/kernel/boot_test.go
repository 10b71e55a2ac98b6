package kernel

import "testing"

func TestTheMachinesStartHasAName(t *testing.T) {
	if first, second := BootID(), BootID(); len(first) != 36 || first != second {
		t.Errorf("%q, then %q", first, second)
	}
}
