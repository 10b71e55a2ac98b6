package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Who deletes a pod that ends already once more, with a shorter period, means that
// period from then on. The object's timestamp counts from the first deletion, as
// the apiserver writes it; a kubelet 1.36 looks at the new period only when the
// stop that runs has returned, and then gives it whole.
func TestAShortenedGracePeriodCountsFromWhenItWasShortened(t *testing.T) {
	for name, tc := range map[string]struct {
		shortened time.Duration // when the second deletion comes
		takes     time.Duration // that the process takes to end
		second    int64
		hook      int64         // seconds of a preStop hook, which the signal comes after
		ended     time.Duration // after the first deletion
		code      int32
		restarted bool // podsync is, before the second deletion
	}{
		"it ends within the new period":                {shortened: 100 * time.Second, takes: 108 * time.Second, second: 10, ended: 108 * time.Second},
		"it does not":                                  {shortened: 100 * time.Second, takes: time.Hour, second: 10, ended: 110 * time.Second, code: 137},
		"what was left before is not made longer":      {shortened: 298 * time.Second, takes: time.Hour, second: 60, ended: 300 * time.Second, code: 137},
		"a hook has the new period to come to its end": {shortened: 100 * time.Second, takes: time.Second, second: 10, hook: 105, ended: 106 * time.Second},
		"so it is in a later life of podsync":          {shortened: 100 * time.Second, takes: time.Hour, second: 10, ended: 110 * time.Second, code: 137, restarted: true},
		"whose first period has begun anew":            {shortened: 295 * time.Second, takes: time.Hour, second: 60, ended: 355 * time.Second, code: 137, restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: tc.takes})}})
				pod := newPod("p", v1.Container{Image: "app:1"})
				if tc.hook > 0 {
					pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: tc.hook}}}
				}
				pod.Generation = 1
				r.reg.Ready("api")
				r.reg.Set(pod, "api")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				began := time.Now()
				gone := deleted(pod, 300)
				gone.Generation = 2
				r.reg.Set(gone, "api")
				time.Sleep(tc.shortened / 2)
				if tc.restarted {
					r.stop()
					gone = gone.DeepCopy()
					gone.Status = r.status(pod.UID)
					r.start()
					r.reg.Set(gone, "api")
					r.reg.Ready("api")
				}
				time.Sleep(tc.shortened - tc.shortened/2)
				again := gone.DeepCopy()
				at := gone.DeletionTimestamp.Add(time.Duration(tc.second-300) * time.Second)
				again.DeletionTimestamp.Time, again.DeletionGracePeriodSeconds = at, &tc.second
				r.reg.Set(again, "api")
				r.until("finished", 10*time.Minute, func() bool { return r.e.isFinished(pod.UID) })
				end := r.status(pod.UID).ContainerStatuses[0].State.Terminated
				took := end.FinishedAt.Sub(began)
				if took < tc.ended || took > tc.ended+2*time.Second || end.ExitCode != tc.code {
					t.Errorf("it ended with %d after %v, want %d after %v", end.ExitCode, took, tc.code, tc.ended)
				}
			})
		})
	}
}
