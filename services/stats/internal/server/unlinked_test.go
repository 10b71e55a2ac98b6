package server

import (
	"testing"

	"github.com/polylet/polylet/services/stats/internal/collector"
)

func TestAVolumesFilesWithoutANameAreToldByItsName(t *testing.T) {
	got := inVolumes(map[string]collector.Files{"a\xff": {Bytes: 1, Count: 2}})
	if len(got) != 1 || got[0].GetVolume() != "a" || got[0].GetBytes() != 1 || got[0].GetFiles() != 2 || inVolumes(nil) != nil {
		t.Errorf("%v", got)
	}
}
