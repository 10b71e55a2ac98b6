package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestAPostStartHookHoldsBackTheNextContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := runsOn(fakecri.Term{})
		slow.Exec = func(fakecri.ExecCall) fakecri.ExecResult { return fakecri.ExecResult{After: 10 * time.Second} }
		r := newRig(t, fakecri.Config{Images: []string{"proxy:1", "app:1"}, Scripts: map[string]fakecri.Script{"proxy:1": slow, "app:1": runsOn(fakecri.Term{})}})
		hook := &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"wait"}}}}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "proxy:1", Lifecycle: hook}, v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("the first runs", time.Minute, func() bool { return len(r.rt.Snapshot().Containers) == 1 })
		took := r.until("ready", time.Minute, func() bool {
			if len(r.rt.Snapshot().Containers) == 1 && isReady(r.status(pod.UID)) {
				t.Error("ready with one container of two")
			}
			return isReady(r.status(pod.UID))
		})
		if took < 10*time.Second {
			t.Errorf("the second container ran after %v, while the hook of the first did", took)
		}
	})
}
