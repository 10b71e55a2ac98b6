package volume

import (
	"testing"

	"github.com/polylet/polylet/internal/testkit/dirtree"
)

// TestAStartWritesNothingOfWhatAPreviousRunHasSetUp: what volumes there are is found on the
// disk, and the first set-up of pods that run changes nothing there: no directory, no file
// of their content and no record beside it.
func TestAStartWritesNothingOfWhatAPreviousRunHasSetUp(t *testing.T) {
	f, d := withAttacher(t)
	f.bind("c", "pv", csiPV())
	f.objects.setMap("cm", map[string]string{"k": "v"})
	pod := podWith(claimVolume("v", "c"), emptyDirVolume("e"), configMapVolume("m", "cm"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	before := dirtree.Of(t, f.root)
	f.set = f.restarted()
	f.set.deps.CSI, f.set.drivers[pluginCSI] = d, d
	if changed := dirtree.Written(before, dirtree.Of(t, f.root)); len(changed) != 0 {
		t.Errorf("by the start alone %v was written", changed)
	}
	if _, err := f.set.OnDisk(); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if changed := dirtree.Written(before, dirtree.Of(t, f.root)); len(changed) != 0 {
		t.Errorf("by the first set-up %v was written", changed)
	}
}
