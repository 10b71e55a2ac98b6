package access

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnAddressIsFamiliarForAWhileAndTheyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Familiar
		f.note("10.0.0.1:1")
		time.Sleep(familiarFor - time.Second)
		if !f.has("10.0.0.1:2") || f.has("10.0.0.2:1") {
			t.Error("10.0.0.1 is familiar, 10.0.0.2 is not")
		}
		for i := range 2 * mostFamiliar {
			f.note(fmt.Sprintf("10.1.%d.%d:1", i/250, i%250))
			time.Sleep(time.Millisecond)
		}
		last := 2*mostFamiliar - 1
		if f.has("10.0.0.1:1") || !f.has(fmt.Sprintf("10.1.%d.%d:1", last/250, last%250)) || len(f.of) != mostFamiliar {
			t.Errorf("not the oldest go: %d are kept", len(f.of))
		}
		time.Sleep(familiarFor)
		if f.has(fmt.Sprintf("10.1.%d.%d:1", last/250, last%250)) {
			t.Error("an address is familiar for ever")
		}
	})
	var none *Familiar
	if none.note("10.0.0.1:1"); none.has("10.0.0.1:1") {
		t.Error("nil remembers")
	}
}
