package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestAnImageThatWentBetweenItsPullAndTheStartIsPulledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pulls := 0
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})},
			Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
				if m == "PullImage" {
					pulls++
				}
				return fakecri.Fault{}
			},
		})
		r.e.setup = func(*v1.Pod) error {
			r.e.mu.Unlock()
			time.Sleep(time.Minute) // a long way from the pull to the start
			r.e.mu.Lock()
			return nil
		}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("the image was looked for", time.Minute, func() bool { return len(r.eventsWith("Pulled")) == 1 })
		if _, err := r.rt.Images().RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "app:1"}}); err != nil {
			t.Fatal(err)
		}
		r.until("ready", 10*time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		if pulls != 1 {
			t.Errorf("pulled %d times", pulls)
		}
	})
}

func TestAnImageThatComesWhileAnInitContainerRunsIsThereInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{
			Images: []string{"init:1"}, Registry: map[string]fakecri.RemoteImage{"init:1": {}},
			Scripts: map[string]fakecri.Script{"init:1": runsOn(fakecri.Term{}), "app:1": runsOn(fakecri.Term{})},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		pod.Spec.InitContainers = []v1.Container{{Name: "i", Image: "init:1", ImagePullPolicy: v1.PullIfNotPresent}}
		r.reg.Set(pod, "api")
		r.until("the image was looked for while the init container runs", time.Minute, func() bool {
			st := r.status(pod.UID).InitContainerStatuses
			return len(r.rt.Pulls()) == 1 && len(st) == 1 && st[0].State.Running != nil
		})
		if failed := r.eventsWith("Failed"); len(failed) != 0 || len(r.eventsWith("Pulling")) != 1 {
			t.Errorf("events of an image that nobody needs yet: %q", failed)
		}
		r.rt.SetImage("app:1", fakecri.RemoteImage{})
		if err := r.rt.Exit(r.rt.Snapshot().Containers[0].ID, 0, "Completed"); err != nil {
			t.Fatal(err)
		}
		if took := r.until("ready", 10*time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > 5*time.Second {
			t.Errorf("ready %v after the init container has ended", took)
		}
		if n := len(r.rt.Pulls()); n != 2 {
			t.Errorf("%d pulls, want one more", n)
		}
	})
}

func TestAContainerWhosePolicyIsAlwaysRunsWhatTheRegistryHasWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{
			Images: []string{"init:1"}, Registry: map[string]fakecri.RemoteImage{"app:1": {Content: "old"}},
			Scripts: map[string]fakecri.Script{"init:1": runsOn(fakecri.Term{}), "app:1": runsOn(fakecri.Term{})},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1", ImagePullPolicy: v1.PullAlways})
		pod.Spec.InitContainers = []v1.Container{{Name: "i", Image: "init:1", ImagePullPolicy: v1.PullIfNotPresent}}
		r.reg.Set(pod, "api")
		r.until("the image is pulled while the init container runs", time.Minute, func() bool {
			st := r.status(pod.UID).InitContainerStatuses
			return len(r.rt.Pulls()) == 1 && len(st) == 1 && st[0].State.Running != nil
		})
		now := fakecri.RemoteImage{Content: "new"}
		r.rt.SetImage("app:1", now) // as an init container that builds it does
		if err := r.rt.Exit(r.rt.Snapshot().Containers[0].ID, 0, "Completed"); err != nil {
			t.Fatal(err)
		}
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		for _, c := range r.rt.Snapshot().Containers {
			if got := c.Config.GetImage().GetImage(); c.Name() != "i" && got != fakecri.ImageID("app:1", now) {
				t.Errorf("it runs %s", got)
			}
		}
	})
}
