package plan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAContainerStartsWithTheImagesOfItsImageVolumes(t *testing.T) {
	w := newWorld(withImageVolume(testPod(v1.RestartPolicyAlways, "a", "b"), 1, "v"))
	var started []podstate.Action
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.StartContainer {
			started = append(started, a)
		}
		return nil
	}
	w.exits["b"] = []int32{1}
	w.settle(time.Minute)
	if len(started) != 3 || started[0].VolumeRefs != nil || started[1].VolumeRefs["v"] != "sha256:v" || started[2].VolumeRefs["v"] != "sha256:v" {
		t.Errorf("starts %+v", started)
	}
	if n := w.count("pull image "); n != 1 {
		t.Errorf("the volume's image was pulled %d times, want once in the pod's life", n)
	}
}

func TestAnImageVolumeThatCannotBePulledHoldsThoseWhoMountIt(t *testing.T) {
	w := newWorld(withImageVolume(testPod(v1.RestartPolicyAlways, "a", "b"), 0, "v"))
	w.fail = func(a podstate.Action) *Failure {
		if a.Volume != "" {
			return &Failure{Reason: "ErrImagePull", Message: "no such image"}
		}
		return nil
	}
	for w.step() {
	}
	state := func(i int) string {
		st := w.out.Status.ContainerStatuses[i].State
		switch {
		case st.Running != nil:
			return "running"
		case st.Waiting != nil:
			return st.Waiting.Reason + ": " + st.Waiting.Message
		}
		return "ended"
	}
	if got := state(0); got != "ErrImagePull: no such image" {
		t.Errorf("at first, who mounts it is %q", got)
	}
	w.settle(5 * time.Second)
	if got := state(0); got != `ImagePullBackOff: Back-off pulling image "data:v": ErrImagePull: no such image` {
		t.Errorf("then, who mounts it is %q", got)
	}
	if got := state(1); got != "running" {
		t.Errorf("who does not mount it is %q", got)
	}
	if w.out.Status.Phase != v1.PodPending {
		t.Errorf("phase %s", w.out.Status.Phase)
	}
	w.fail = nil
	w.settle(time.Minute)
	if got := state(0); got != "running" {
		t.Errorf("when it can be pulled, who mounts it is %q", got)
	}
	if text := strings.Join(w.log, ","); !strings.Contains(text, "pull image") {
		t.Errorf("actions %s", text)
	}
}
