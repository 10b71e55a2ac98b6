package threshold

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheFilesystemOfContainersHasTheThresholdsOfTheOneThatItIsOn(t *testing.T) {
	configured := []Threshold{
		{Signal: "containerfs.available", Amount: Amount{Percent: 50}, Hard: true}, {Signal: "imagefs.available", Amount: Amount{Percent: 15}, Hard: true},
		{Signal: "nodefs.inodesFree", Amount: Amount{Percent: 5}},
	}
	for name, test := range map[string]struct {
		layout Layout
		want   Threshold
	}{
		"one filesystem": {Layout{}, Threshold{Signal: "containerfs.inodesFree", Amount: Amount{Percent: 5}}},
		"images apart":   {Layout{ImagesApart: true}, Threshold{Signal: "containerfs.available", Amount: Amount{Percent: 15}, Hard: true}},
		"split":          {Layout{ImagesApart: true, ContainersApart: true}, Threshold{Signal: "containerfs.inodesFree", Amount: Amount{Percent: 5}}},
	} {
		if diff := cmp.Diff([]Threshold{configured[1], configured[2], test.want}, For(configured, test.layout)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
