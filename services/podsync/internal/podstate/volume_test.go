package podstate

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestNoVolumeThatFailedIsNoError(t *testing.T) {
	var none VolumeErrors
	if err := none.OrNil(); err != nil {
		t.Errorf("%v", err)
	}
	if err := (VolumeErrors{{Volume: "v", Err: fs.ErrNotExist}}).OrNil(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is not found in %v", err)
	}
}

func TestOfManyVolumesThatFailedTheFirstAreNamed(t *testing.T) {
	var all VolumeErrors
	for i := range mostNamed + 2 {
		all = append(all, &VolumeError{Volume: fmt.Sprintf("v%d", i), Err: errors.New("no"), Stands: i%5 == 0})
	}
	text := all.Error()
	if !strings.HasPrefix(text, `MountVolume.SetUp failed for volume "v0" : no; `) || !strings.HasSuffix(text, `"v9" : no; and 2 more volumes failed`) {
		t.Errorf("%s", text)
	}
	if got, want := all.Standing(), []string{"v0", "v5", "v10"}; !slices.Equal(got, want) {
		t.Errorf("%q stand, want %q", got, want)
	}
}

func TestDevicesThatFailAreNamedAsTheKubeletDoes(t *testing.T) {
	device := &VolumeError{Volume: "d", Err: &VolumeStep{Step: "MapVolume.MapPodDevice", Err: errors.New("no")}}
	mount := &VolumeError{Volume: "m", Err: &VolumeStep{Step: "MountVolume.MountDevice", Err: errors.New("no")}}
	attach := &VolumeError{Volume: "a", Err: &VolumeStep{Step: "AttachVolume.Attach", Err: errors.New("no")}}
	elsewhere := &VolumeError{Volume: "e", Err: &VolumeStep{Step: MapNodeAffinity, Err: errors.New("no")}}
	for _, c := range []struct {
		want string
		errs VolumeErrors
	}{
		{"FailedMapVolume", VolumeErrors{device}},
		{"FailedMount", VolumeErrors{device, mount, attach}},
		{"FailedAttachVolume", VolumeErrors{attach, attach}},
		{"FailedMount", VolumeErrors{elsewhere}}, // before it is mapped
	} {
		if got := c.errs.EventReason(); got != c.want {
			t.Errorf("%v: %s, want %s", c.errs, got, c.want)
		}
	}
}

func TestAStepMaySayItselfThatItFailed(t *testing.T) {
	err := &VolumeError{Volume: "v", Err: &VolumeStep{Step: "MountVolume.Setup failed while expanding volume", Err: errors.New("no"), Whole: true}}
	if got, want := err.Error(), `MountVolume.Setup failed while expanding volume for volume "v" : no`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAPodIsRejectedForAVolumeThatTheNodeHasNoRoomFor(t *testing.T) {
	waits := &VolumeError{Volume: "b", Err: &VolumeStep{Step: "MountVolume.WaitForAttach", Err: errors.New("not yet")}}
	if text, is := (VolumeErrors{waits}).Unattachable(); is {
		t.Errorf("rejected: %s", text)
	}
	full := &VolumeError{Volume: "a", Err: &VolumeStep{Step: "MountVolume.WaitForAttach", Err: fmt.Errorf("%w: full", ErrNoRoomToAttach)}}
	other := &VolumeError{Volume: "c", Err: fs.ErrNotExist}
	text, is := VolumeErrors{waits, full, other}.Unattachable()
	want := "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[a b c], unattached volumes=[a b], failed to process volumes=[]: context deadline exceeded"
	if !is || text != want {
		t.Errorf("%v, %s", is, text)
	}
}

func TestAVolumeOfAClaimIsNamedAsItsPersistentVolume(t *testing.T) {
	failed := &VolumeError{Volume: "data", PV: "pvc-1", Err: errors.New("no")}
	if got := failed.Error(); got != `MountVolume.SetUp failed for volume "pvc-1" : no` {
		t.Error(got)
	}
	failed.Err = &VolumeStep{Step: "MountVolume.MountDevice", Err: errors.New("no")}
	if got := failed.Error(); got != `MountVolume.MountDevice failed for volume "pvc-1" : no` {
		t.Error(got)
	}
	if failed.PV = ""; failed.Error() != `MountVolume.MountDevice failed for volume "data" : no` {
		t.Error(failed)
	}
}
