package plan

import (
	"strings"
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// A cause that is new has to say what is to be done about it.
func TestEachCauseOfAVolumesFailureHasAnAdviceOfItsOwn(t *testing.T) {
	said := map[string]podstate.VolumeCause{}
	for _, c := range podstate.VolumeCauses() {
		got := volumeCauseAdvice(c)
		if got == "" {
			t.Errorf("of cause %d nobody says what is to be done", c)
		}
		if other, twice := said[got]; twice {
			t.Errorf("causes %d and %d have one advice: %s", c, other, got)
		}
		said[got] = c
		if advice(podstate.SetupVolumes, Failure{Volume: c}) != got || advice(podstate.TeardownVolumes, Failure{Volume: c}) == "" {
			t.Errorf("the advice of cause %d does not come to people", c)
		}
	}
}

func TestAdviceOnAVolumeIsAboutItsCause(t *testing.T) {
	for _, c := range []struct {
		kind  podstate.Kind
		cause podstate.VolumeCause
		want  string
	}{
		{podstate.SetupVolumes, podstate.VolumeUnsupported, "another kind of volume"},
		{podstate.SetupVolumes, podstate.VolumeDriverAway, "start the CSI driver"},
		{podstate.SetupVolumes, podstate.VolumeDriverMode, "volumeLifecycleModes"},
		{podstate.SetupVolumes, podstate.VolumeDriverRefused, "driver's own answer"},
		{podstate.SetupVolumes, podstate.VolumeInUse, "delete the pod that has it"},
		{podstate.SetupVolumes, podstate.VolumeNotAttached, "external-attacher"},
		{podstate.SetupVolumes, podstate.VolumeDiskNotAttached, "kube-controller-manager"},
		{podstate.SetupVolumes, podstate.VolumeNoController, "enableControllerAttachDetach"},
		{podstate.SetupVolumes, podstate.VolumeNotBound, "kubectl describe pvc"},
		{podstate.SetupVolumes, podstate.VolumeMode, "volumeDevices"},
		{podstate.SetupVolumes, podstate.VolumeOtherNode, "nodeAffinity"},
		{podstate.SetupVolumes, podstate.VolumeOptions, "mountOptions"},
		{podstate.SetupVolumes, podstate.VolumePanicked, "please report it"},
		{podstate.TeardownVolumes, podstate.VolumeDriverAway, "it alone can take its volume back"},
		{podstate.TeardownVolumes, podstate.VolumeDriverSilent, "it does not answer"},
		{podstate.TeardownVolumes, podstate.VolumeDriverRefused, "does not take its volume back"},
		{podstate.TeardownVolumes, podstate.VolumeServerSilent, "server behind the volume"},
		{podstate.TeardownVolumes, podstate.VolumeBusy, "fuser"},
		{podstate.TeardownVolumes, podstate.VolumeUnderWay, "wait"},
		{podstate.TeardownVolumes, podstate.VolumeSeveral, "mend what the error names"},
	} {
		if got := advice(c.kind, Failure{Volume: c.cause}); !strings.Contains(got, c.want) {
			t.Errorf("%s, cause %d: the advice is %q, want %q in it", c.kind, c.cause, got, c.want)
		}
	}
}

// A driver, a server or a program says what it likes.
func TestNoWordOfAVolumesErrorStandsForItsCause(t *testing.T) {
	const words = `rpc error: code = NotFound desc = no space left on device, read-only file system, not supported, timed out: context deadline exceeded, forbidden, no csidriver object, registered csi drivers, device busy, name is reserved for "a", blob not found`
	for _, k := range []podstate.Kind{podstate.SetupVolumes, podstate.TeardownVolumes} {
		for _, c := range podstate.VolumeCauses() {
			if with, without := advice(k, Failure{Volume: c, Message: words}), advice(k, Failure{Volume: c}); with != without {
				t.Errorf("%s, cause %d: the words make %q of %q", k, c, with, without)
			}
		}
	}
	// Where no cause is said the text is this node agent's own, and the kernel's.
	if got := advice(podstate.SetupVolumes, Failure{Message: "mkdir /v: no space left on device"}); !strings.Contains(got, "make room") {
		t.Errorf("of a disk that is full the advice is %q", got)
	}
	if got := advice(podstate.SetupVolumes, Failure{Message: `secret "not-supported" has not answered: deadline exceeded`}); got != neutralVolume {
		t.Errorf("of what nobody knows the advice is %q", got)
	}
}
