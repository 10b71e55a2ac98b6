package server

import (
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

func TestAVolumeThatIsCountedIsSaidToBeAndKeepsItsPath(t *testing.T) {
	got := volumesMessage(&podcache.Volumes{Volumes: []podcache.Volume{{Name: "e", HostPath: "/e", Ephemeral: true, Counted: true}}}).GetVolumes()[0]
	if !got.GetCounted() || got.GetHostPath() != "/e" || got.GetDriven() {
		t.Errorf("%v", got)
	}
}
