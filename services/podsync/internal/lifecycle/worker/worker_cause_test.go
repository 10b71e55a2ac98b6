package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestANewImageStartsAContainerAnewThoughItsPolicyIsNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1", "app:2"}, Scripts: map[string]fakecri.Script{
			"app:1": runsOn(fakecri.Term{After: time.Second}), "app:2": runsOn(fakecri.Term{}),
		}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		changed := pod.DeepCopy()
		changed.Spec.Containers[0].Image = "app:2"
		r.reg.Set(changed, "api")
		r.until("runs again", time.Minute, func() bool {
			st := r.status(pod.UID)
			return isReady(st) && st.ContainerStatuses[0].RestartCount == 1
		})
		r.e.mu.Lock()
		defer r.e.mu.Unlock()
		for _, st := range r.e.statuses[pod.UID] {
			if len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].State.Terminated != nil {
				t.Errorf("told to have ended, which the API does not take back: %+v", st.ContainerStatuses[0])
			}
		}
	})
}
