package worker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestWhoIsActiveIsToldAndKnownOnceAllSourcesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": fakecri.Exits(time.Minute, 0)}})
		var changes atomic.Int32
		r.reg.deps.ActiveChanged = func() { changes.Add(1) }
		pod := newPod("p", v1.Container{Image: "app:1"})
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		r.reg.Set(pod, "api")
		if _, known := r.reg.Active(); known {
			t.Error("all pods are known, though a source was not heard")
		}
		r.reg.Ready("api")
		r.until("it runs", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodRunning })
		if pods, known := r.reg.Active(); !known || len(pods) != 1 || pods[0].UID != pod.UID {
			t.Errorf("while it runs: %v, %v", pods, known)
		}
		before := changes.Load()
		r.until("it has ended", 2*time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodSucceeded })
		if pods, _ := r.reg.Active(); len(pods) != 0 || before == 0 || changes.Load() == before {
			t.Errorf("when it has ended: %v, told %d times, and %d before", pods, changes.Load(), before)
		}
	})
}
