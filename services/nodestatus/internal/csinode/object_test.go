package csinode

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
)

func TestHowManyVolumesThereMayBeIsChangedInItsPlace(t *testing.T) {
	before := Driver{Name: "a", NodeID: "n", MaxVolumes: 3}
	for name, c := range map[string]struct {
		now     Driver
		changed bool
	}{
		"the count":                 {Driver{Name: "a", NodeID: "n", MaxVolumes: 4}, true},
		"nothing":                   {before, false},
		"the node's name, too":      {Driver{Name: "a", NodeID: "m", MaxVolumes: 4}, false},
		"it says no number":         {Driver{Name: "a", NodeID: "n"}, false},
		"gone":                      {Driver{Name: "a", NodeID: "n", MaxVolumes: 4, Gone: true}, false},
		"another driver of no note": {Driver{Name: "b", NodeID: "n", MaxVolumes: 4}, false},
	} {
		there := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{entry(before)}}}
		changed := recount(there, []Driver{c.now})
		want := entry(before)
		if c.changed {
			want = entry(c.now)
		}
		if changed != c.changed || !same(there.Spec.Drivers[0], want) {
			t.Errorf("%s: changed %v, %+v", name, changed, there.Spec.Drivers[0])
		}
	}
}
