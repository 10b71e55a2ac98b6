package worker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestWhatTheNodeEndsDoesNotComeBackWhenPodsyncIsKilled(t *testing.T) {
	for name, static := range map[string]bool{"of the apiserver": false, "static": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := runsOn(fakecri.Term{Ignore: true})
				r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": slow}})
				pod, src := newPod("p", v1.Container{Image: "app:1"}), "api"
				if static {
					src = "file"
				}
				r.reg.Ready("api")
				r.reg.Set(pod, src)
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				r.end(pod.UID, podstate.Stop{Reason: "Evicted", Message: "low"})
				r.until("its end has begun", time.Minute, func() bool { return r.rt.Calls()["StopContainer"] == 1 })
				r.stop()
				r.start()
				r.reg.Set(pod, src)
				r.reg.Ready("api")
				r.until("failed", time.Hour, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
				if st := r.status(pod.UID); st.Reason != "Evicted" || st.Message != "low" || st.ContainerStatuses[0].RestartCount != 0 {
					t.Errorf("status %+v", st)
				}
				told := pod.DeepCopy()
				told.Status = r.status(pod.UID)
				r.reg.Set(told, src)
				synctest.Wait()
				if r.ends.Of(pod.UID) != nil {
					t.Error("what is over is still kept")
				}
			})
		})
	}
}

// The disk may be full, and that the reason to end the pod.
func TestThatAnEndCannotBeKeptHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Ready("api")
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		if err := os.RemoveAll(filepath.Dir(r.path)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Dir(r.path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.reg.Stop(t.Context(), pod.UID, podstate.Stop{Reason: "Evicted", Message: "low"}, nil); !errors.Is(err, ErrNotKept) {
			t.Errorf("it is not said that it could not be kept: %v", err)
		}
		if took := r.until("failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed }); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A later podsync begins a static pod anew, as after any end.
func TestTheEndOfAStaticPodThatIsKeptLateDoesNotOutliveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: 5 * time.Second})}})
		puts := 0
		r.put = func() error {
			if puts++; puts == 1 {
				return errors.New("the disk is full")
			}
			time.Sleep(20 * time.Second) // and slow
			return nil
		}
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Ready("api")
		r.reg.Set(pod, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.end(pod.UID, podstate.Stop{Reason: "Evicted", Message: "low"})
		r.until("failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		if puts != 2 {
			t.Errorf("kept %d times when it ended", puts)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if stop := r.ends.Of(pod.UID); stop != nil {
			t.Errorf("it is still to be ended: %+v", stop)
		}
	})
}
