package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Who removes a pod leaves the logs of one that comes back; if it does not after
// all, somebody has to see to them.
func TestWhatWasLeftForAPodThatDoesNotComeBackIsSeenTo(t *testing.T) {
	for name, back := range map[string]bool{"it comes back": true, "it does not": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: time.Second})}})
			synctest.Wait()
			orphans := 0
			work := r.reg.begin
			r.reg.begin = func(w *held) {
				if w.pod == nil {
					orphans++
				}
				work(w)
			}
			pod := newPod("p", v1.Container{Image: "app:1"})
			r.reg.Ready("api")
			r.reg.Set(pod, "file")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
			if r.reg.Returns(pod.UID) {
				t.Errorf("%s: a pod that runs is said to return", name)
			}
			r.reg.Remove(pod.UID, "file")
			r.reg.Set(pod, "file")
			if !r.reg.Returns(pod.UID) {
				t.Errorf("%s: a pod that is wanted again is not said to return", name)
			}
			if !back {
				r.reg.Remove(pod.UID, "file")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if (orphans > 0) == back {
				t.Errorf("%s: %d workers without a pod", name, orphans)
			}
		})
	}
}

// A worker that begins before it was given its pod takes it for one that no
// source knows, and ends it. Whether that shows is up to the scheduler, so this
// looks at what each worker begins with.
func TestAWorkerHasItsPodBeforeItPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}})
		synctest.Wait() // it runs: what is set works at once
		begun := map[string]int{}
		work := r.reg.begin
		r.reg.begin = func(w *held) {
			w.inbox.mu.Lock()
			defer w.inbox.mu.Unlock()
			if w.pod != nil {
				begun[w.pod.Name]++
				if w.inbox.told.pod == nil {
					t.Errorf("the worker of pod %s begins without it", w.pod.Name)
				}
			}
			work(w)
		}
		pod := newPod("new", v1.Container{Image: "app:1"})
		r.reg.Ready("api")
		r.reg.Set(pod, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Remove(pod.UID, "file")
		r.reg.Set(pod, "file") // wanted again while it is being ended
		time.Sleep(time.Minute)
		synctest.Wait()
		if begun["new"] != 2 || !isReady(r.status(pod.UID)) {
			t.Errorf("workers begun: %v, ready %v", begun, isReady(r.status(pod.UID)))
		}
	})
}
