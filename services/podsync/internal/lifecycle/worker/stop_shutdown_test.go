package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestAPodWhoseMachineGoesDownIsStoppedWhateverItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		static, important := newPod("static", v1.Container{Image: "app:1"}), newPod("important", v1.Container{Image: "app:1"})
		priority := int32(podutil.CriticalPriority)
		important.Spec.Priority = &priority
		r.reg.Set(static, "file")
		r.reg.Set(important, "api")
		stop := evicted(1)
		stop.Reason, stop.Shutdown = "Terminated", true
		for _, pod := range []*v1.Pod{static, important} {
			r.until("it runs", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodRunning })
			if _, err := r.reg.Stop(t.Context(), pod.UID, stop, nil); err != nil {
				t.Errorf("%s: %v", pod.Name, err)
			}
			r.until("it has ended", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
			if st := r.status(pod.UID); st.Reason != "Terminated" {
				t.Errorf("%s: %+v", pod.Name, st)
			}
		}
		if r.ends.Of(static.UID) != nil {
			t.Error("the static pod would not start with the machine")
		}
		if got := r.eventsWith("Terminated"); len(got) != 0 {
			t.Errorf("events %q", got)
		}
	})
}

func TestAStaticPodBeginsAnewWhenTheMachineDoesNotGoDownAfterAll(t *testing.T) {
	for name, early := range map[string]bool{"it has ended": false, "it is ending": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
			r.reg.Ready("api")
			static, other := newPod("static", v1.Container{Image: "app:1"}), newPod("other", v1.Container{Image: "app:1"})
			r.reg.Set(static, "file")
			r.reg.Set(other, "api")
			stop := evicted(1)
			stop.Reason, stop.Shutdown = "Terminated", true
			for _, pod := range []*v1.Pod{static, other} {
				r.until("it runs", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodRunning })
				if _, err := r.reg.Stop(t.Context(), pod.UID, stop, nil); err != nil {
					t.Errorf("%s: %v", pod.Name, err)
				}
				if pod == static && early {
					r.reg.CalledOff()
					continue
				}
				r.until("it has ended", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
			}
			r.reg.CalledOff()
			r.until(name+": it runs anew", time.Minute, func() bool { return r.status(static.UID).Phase == v1.PodRunning && r.status(static.UID).Reason == "" })
			time.Sleep(time.Minute)
			if phase := r.status(other.UID).Phase; phase != v1.PodFailed {
				t.Errorf("%s: a pod of the apiserver's is %s", name, phase)
			}
			r.reg.CalledOff() // Once more does nothing.
			time.Sleep(time.Minute)
			if phase := r.status(static.UID).Phase; phase != v1.PodRunning {
				t.Errorf("%s: later it is %s", name, phase)
			}
		})
	}
}

func TestAStaticPodThatWasRejectedBeginsWhenTheMachineDoesNotGoDownAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		admit := r.reg.deps.Admit
		rejects := func(reason string) func(Question) Answer {
			return func(Question) Answer {
				return Answer{Admission: podstate.Admission{Decision: podstate.Rejected, Reason: reason}}
			}
		}
		names := map[string]v1.PodPhase{"late": v1.PodRunning, "unfit": v1.PodFailed, "other": v1.PodFailed}
		for name, reason := range map[string]string{"late": "NodeShutdown", "unfit": "OutOfcpu", "other": "NodeShutdown"} {
			r.reg.deps.Admit = rejects(reason)
			pod := newPod(name, v1.Container{Image: "app:1"})
			source := "file"
			if name == "other" {
				source = "api"
			}
			r.reg.Set(pod, source)
			r.until(name+" is rejected", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		}
		r.reg.deps.Admit = admit
		r.reg.CalledOff()
		time.Sleep(time.Minute)
		for name, want := range names {
			if got := r.status(newPod(name, v1.Container{Image: "app:1"}).UID).Phase; got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
	})
}
