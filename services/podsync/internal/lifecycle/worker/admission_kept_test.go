package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// Of a pod that waits for its network there is no sandbox that could say what it was
// admitted with, and its status does not say it of containers that were never made.
func TestAPodWithoutASandboxHasWhatItWasAdmittedWithThoughItsSpecAsksForMoreSince(t *testing.T) {
	for name, tc := range map[string]struct {
		told bool // the world knew that the pod was admitted
	}{
		"the status tells that it was admitted":    {told: true},
		"the process died before that was written": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
				r.capacity = 3000
				r.rt.SetNetworkReady(false)
				time.Sleep(time.Minute)
				pod := newPod("p", sized("1", "10Mi"), sized("1", "10Mi"))
				pod.Generation = 1
				r.reg.Set(pod, "api")
				r.until("told", time.Minute, func() bool { return r.status(pod.UID).StartTime != nil })
				r.stop()
				next := asks(pod, 2, "90", "10Mi")
				if tc.told {
					next.Status = r.status(pod.UID)
				}
				r.rt.SetNetworkReady(true)
				r.start()
				r.reg.Set(next, "api")
				r.reg.Ready("api")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				st := r.status(pod.UID)
				if got := st.ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" || conditionIn(st, v1.PodResizePending).Reason != v1.PodReasonDeferred {
					t.Errorf("it has %s cpus, and nobody was asked; conditions %+v", got, st.Conditions)
				}
				if conditionIn(st, v1.PodResizeInProgress).Status != "" {
					t.Errorf("a resize is under way: %+v", st.Conditions)
				}
			})
		})
	}
}

func TestAnAdmissionIsToldWhenWhatThePodHasIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.rt.SetNetworkReady(false)
		time.Sleep(time.Minute)
		written := make(chan struct{})
		r.keep = func() error { <-written; return nil }
		r.reg.Ready("api")
		pod := newPod("p", sized("1", "10Mi"))
		r.reg.Set(pod, "api")
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := r.status(pod.UID); st.StartTime != nil {
			t.Errorf("told before it is kept: %+v", st)
		}
		close(written)
		r.until("told", time.Second, func() bool { return r.status(pod.UID).StartTime != nil })
		if e, ok := r.store.Get(pod.UID); !ok || !e.Equal(resize.Of(pod)) || e.Generation != 0 {
			t.Errorf("kept: %+v", e)
		}
	})
}

// A disk may take longer to write than the pod lives. How it ended is told before its
// object goes.
func TestTheEndOfAPodIsToldThoughWhatItHasIsNotKeptYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.rt.SetNetworkReady(false)
		time.Sleep(time.Minute)
		written := make(chan struct{})
		defer close(written)
		r.keep = func() error { <-written; return nil }
		r.reg.Ready("api")
		pod := newPod("p", sized("1", "10Mi"))
		r.reg.Set(pod, "api")
		time.Sleep(time.Minute)
		r.reg.Set(deleted(pod, 30), "api")
		r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) })
		if st := r.status(pod.UID); st.Phase != v1.PodFailed {
			t.Errorf("its object is deleted, and the world was told %+v", st)
		}
	})
}

// What it was admitted with stands on its sandbox then.
func TestAPodIsToldOfOnceItsSandboxIsUpHoweverLongTheDiskTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.e.setup = func(*v1.Pod) error { return errors.New("no such server") } // its container does not start
		written := make(chan struct{})
		defer close(written)
		r.keep = func() error { <-written; return nil }
		r.reg.Ready("api")
		pod := newPod("p", sized("1", "10Mi"))
		r.reg.Set(pod, "api")
		r.until("told", time.Minute, func() bool { return r.status(pod.UID).StartTime != nil })
		if len(r.obs.Current(pod.UID).Sandboxes) == 0 {
			t.Error("told before anything says what it was admitted with")
		}
	})
}

func TestAPodIsToldOfThoughTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.keep = func() error { return errors.New("no space left on device") }
		r.reg.Ready("api")
		pod := newPod("p", sized("1", "10Mi"))
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
	})
}

// What can never be resized needs nobody to remember what it was admitted with.
func TestNothingIsKeptOfAPodThatAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.keep = func() error { t.Error("something is written"); return nil }
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "img:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
	})
}

// Between the lives of two processes, too, others reckon with a pod that was admitted.
func TestAPodWhoseAllocationIsKeptCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		pod := newPod("p", sized("1", "10Mi"))
		if err := r.store.Put(t.Context(), pod.UID, allocation.Entry{Allocation: resize.Of(pod)}); err != nil {
			t.Fatal(err)
		}
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		kept, _ := newHeld(r.reg, pod.UID, 1)
		other, _ := newHeld(r.reg, "other", 2)
		asking, _ := newHeld(r.reg, "asking", 3)
		kept.pod, kept.source = asks(pod, 2, "90", "10Mi"), "api"
		other.pod, other.source = newPod("other", sized("90", "10Mi")), "api"
		r.reg.pods[kept.uid], r.reg.pods[other.uid] = kept, other
		active := r.reg.activeLocked(asking)
		if len(active) != 1 || active[0].Spec.Containers[0].Resources.Requests.Cpu().String() != "1" {
			t.Errorf("others reckon with %+v", active)
		}
		clear(r.reg.pods) // nobody runs them
	})
}
