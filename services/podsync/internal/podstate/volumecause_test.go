package podstate

import (
	"errors"
	"fmt"
	"testing"
)

func TestTheCauseNearestToAVolumesFailureStands(t *testing.T) {
	busy, other := errors.New("busy"), errors.New("other")
	inUse := VolumeInUse.Wrap(busy)
	for name, c := range map[string]struct {
		err  error
		want VolumeCause
	}{
		"none":                   {busy, VolumeUnknown},
		"no error":               {VolumeInUse.Wrap(nil), VolumeUnknown},
		"its own":                {inUse, VolumeInUse},
		"within":                 {&VolumeStep{Step: "MountVolume.SetUp", Err: fmt.Errorf("it: %w", inUse)}, VolumeInUse},
		"given again":            {VolumeSpec.Wrap(fmt.Errorf("it: %w", inUse)), VolumeInUse},
		"beside one without":     {errors.Join(other, inUse), VolumeInUse},
		"beside one like it":     {errors.Join(inUse, VolumeInUse.Wrap(other)), VolumeInUse},
		"beside another":         {errors.Join(inUse, VolumeSpec.Wrap(other)), VolumeSeveral},
		"several, given anew":    {VolumeDisk.Wrap(errors.Join(inUse, VolumeSpec.Wrap(other))), VolumeSeveral},
		"volumes of one pod":     {VolumeErrors{{Volume: "v", Err: inUse}}, VolumeInUse},
		"of volumes that differ": {VolumeErrors{{Volume: "v", Err: inUse}, {Volume: "w", Err: VolumeSpec.Wrap(other)}}, VolumeSeveral},
	} {
		if got := VolumeCauseOf(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if !errors.Is(inUse, busy) || inUse.Error() != "busy" || VolumeInUse.Wrap(nil) != nil {
		t.Errorf("the error itself is not as it was: %v", inUse)
	}
}
