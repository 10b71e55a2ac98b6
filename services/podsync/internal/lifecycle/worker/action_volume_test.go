package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

func TestEachVolumeFailsForItsOwnCause(t *testing.T) {
	failed := podstate.VolumeErrors{
		{Volume: "a", Err: podstate.VolumeInUse.Wrap(errors.New("another pod has it"))},
		{Volume: "b", Err: podstate.VolumeNotBound.Wrap(errors.New("PVC is not bound"))},
		{Volume: "c", Err: errors.New("mkdir: no space left on device")},
	}
	w := &worker{}
	out := w.planned(outcome{action: podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}}, err: reason.New("FailedMount", failed)}, time.Now())
	for name, want := range map[string]podstate.VolumeCause{"a": podstate.VolumeInUse, "b": podstate.VolumeNotBound, "c": podstate.VolumeUnknown} {
		if got := out.Volumes[name].Volume; got != want {
			t.Errorf("volume %s: cause %d, want %d", name, got, want)
		}
	}
	if got := out.Failure.Volume; got != podstate.VolumeSeveral {
		t.Errorf("all of them: cause %d", got)
	}
}
