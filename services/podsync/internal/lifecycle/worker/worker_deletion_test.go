package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// What a container gets when podsync comes back to a pod that was deleted
// meanwhile, by whether the podsync before had told that it saw the deletion.
func TestAPodDeletedWhileNobodyWasThereGetsItsWholeGracePeriod(t *testing.T) {
	for name, tc := range map[string]struct {
		told bool
		away time.Duration
	}{
		"deleted meanwhile, long ago": {false, 5 * time.Minute},
		"deleted meanwhile, just now": {false, time.Second},
		// When it began, nobody knows: the former podsync may have seen the deletion
		// long after it was asked for, and have asked nobody to end yet.
		"its end had begun, and its time may be over": {true, 5 * time.Minute},
		"its end had begun just now":                  {true, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: 10 * time.Second})}})
				pod := newPod("p", v1.Container{Image: "app:1", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}}})
				pod.Generation = 1
				r.reg.Ready("api")
				r.reg.Set(pod, "api")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				known := pod.DeepCopy()
				known.Status = r.status(pod.UID)
				r.stop()
				gone := deleted(known, 30)
				gone.Generation = 2
				if tc.told {
					gone.Status.ObservedGeneration = 2
				}
				time.Sleep(tc.away)
				r.start()
				r.reg.Set(gone, "api")
				r.reg.Ready("api")
				took := r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) })
				if end := r.status(pod.UID).ContainerStatuses[0].State.Terminated; took < 13*time.Second || end.ExitCode != 0 {
					t.Errorf("ended with %d after %v", end.ExitCode, took)
				}
			})
		})
	}
}

func TestThatADeletionWasSeenIsToldWithTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: 10 * time.Second})}})
		pod := newPod("p", v1.Container{Image: "app:1"})
		pod.Generation = 1
		r.reg.Ready("api")
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		gone := deleted(pod, 30)
		gone.Generation = 2
		r.reg.Set(gone, "api")
		synctest.Wait()
		if got := r.status(pod.UID).ObservedGeneration; got != 2 {
			t.Errorf("the status is for generation %d", got)
		}
	})
}
