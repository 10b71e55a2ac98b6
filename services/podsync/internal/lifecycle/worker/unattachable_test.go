package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// TestAPodThatHasRunSaysThatTheNodeHasNoRoomForItsVolume: it is not rejected, and says what
// it waits for, as of any other volume.
func TestAPodThatHasRunSaysThatTheNodeHasNoRoomForItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("running", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodRunning })
		full := podstate.VolumeErrors{{Volume: "v", Err: &podstate.VolumeStep{Step: "MountVolume.WaitForAttach", Err: fmt.Errorf("%w: full", podstate.ErrNoRoomToAttach)}}}
		r.e.setup = func(*v1.Pod) error { return full }
		changed := pod.DeepCopy()
		changed.Labels = map[string]string{"new": "label"}
		r.reg.Set(changed, "api")
		r.until("told", time.Minute, func() bool { return len(r.eventsWith("FailedMount")) > 0 })
		if got := r.eventsWith("FailedMount"); !strings.Contains(got[0], full.Error()) {
			t.Errorf("events %q", got)
		}
		if st := r.status(pod.UID); st.Phase != v1.PodRunning {
			t.Errorf("status %+v", st)
		}
	})
}

func TestAPodWhoseVolumeTheNodeHasNoRoomForIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		r.e.setup = func(*v1.Pod) error {
			full := fmt.Errorf("%w: full", podstate.ErrNoRoomToAttach)
			return podstate.VolumeErrors{{Volume: "v", Err: &podstate.VolumeStep{Step: "MountVolume.WaitForAttach", Err: full}}}
		}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}})
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		r.reg.Set(pod, "api")
		r.until("failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		want := "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
		if st := r.status(pod.UID); st.Reason != "VolumeAttachmentLimitExceeded" || st.Message != "Pod was rejected: "+want {
			t.Errorf("status %+v", st)
		}
		if got := r.eventsWith("VolumeAttachmentLimitExceeded"); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("events %q", got)
		}
		if slices.ContainsFunc(r.eventsWith("Started"), func(string) bool { return true }) {
			t.Error("a container was started")
		}
	})
}
