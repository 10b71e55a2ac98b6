package worker

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// oneAtATime admits one pod; a critical one has the other stopped.
func oneAtATime(q Question) Answer {
	switch {
	case len(q.Active) == 0:
		return Answer{Admission: podstate.Admission{Decision: podstate.Admitted}}
	case !strings.HasPrefix(q.Pod.Name, "critical"):
		return Answer{Admission: podstate.Admission{Decision: podstate.Rejected, Reason: "OutOfpods", Message: "full"}}
	}
	a := Answer{Admission: podstate.Admission{Reason: reasonPreempting, Message: "waits for room"}}
	for _, pod := range q.Active {
		if _, leaving := q.Leaving[pod.UID]; !leaving {
			a.Preempt = append(a.Preempt, Preemption{UID: pod.UID, Signal: "pods", Stop: podstate.Stop{
				Reason: "Preempting", Message: "makes room", Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"},
			}})
		}
	}
	return a
}

func TestACriticalPodTakesThePlaceOfAnotherAndNobodyElseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 8 * time.Second}}}})
		r.reg.deps.Admit = oneAtATime
		r.reg.Ready("api")
		victim := newPod("victim", v1.Container{Image: "app:1"})
		r.reg.Set(victim, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(victim.UID)) })

		critical := newPod("critical", v1.Container{Image: "app:1"})
		highest := int32(podutil.CriticalPriority)
		critical.Spec.Priority = &highest
		r.reg.Set(critical, "api")
		time.Sleep(6 * time.Second)
		if got, _ := r.reg.Explain(critical.UID); len(got.Waits) != 1 || !strings.Contains(got.Waits[0].Reason, "waits for room") {
			t.Errorf("while the victim ends the pod waits for %+v", got.Waits)
		}
		late := newPod("late", v1.Container{Image: "app:1"})
		r.reg.Set(late, "api")
		r.until("the victim has ended", time.Minute, func() bool { return r.status(victim.UID).Phase == v1.PodFailed })
		time.Sleep(10 * time.Second)
		if isReady(r.status(critical.UID)) {
			t.Error("the critical pod was started before the apiserver knew of the victim's end: after a crash both would run")
		}
		st := r.status(victim.UID)
		known := victim.DeepCopy()
		known.Status = st
		r.reg.Set(known, "api")
		r.until("the critical pod is ready", time.Minute, func() bool { return isReady(r.status(critical.UID)) })
		if st.Phase != v1.PodFailed || st.Reason != "Preempting" || st.Message != "makes room" || st.Conditions[0].Type != v1.DisruptionTarget {
			t.Errorf("the victim's status is %+v", st)
		}
		if got := r.status(late.UID); got.Reason != "OutOfpods" {
			t.Errorf("a pod that came while room was made: %+v", got)
		}
		told := strings.Join(r.e.said(), "\n")
		for _, want := range []string{"Warning Preempting makes room", "Normal AdmissionPending waits for room", "Warning OutOfpods full"} {
			if strings.Count(told, want) != 1 {
				t.Errorf("event %q is there %d times in\n%s", want, strings.Count(told, want), told)
			}
		}
	})
}

// The runtime does not kill the victim. Admission is told for how long it has been
// stopped, and gives it up; of one that has ended nothing is to be given up, though the
// apiserver, which is away, does not know.
func TestACriticalPodDoesNotWaitForAVictimThatDoesNotEnd(t *testing.T) {
	for _, unkillable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
				return fakecri.Fault{Hang: unkillable && strings.HasPrefix(method, "Stop")}
			}})
			victim, critical := newPod("victim", v1.Container{Image: "app:1"}), newPod("critical", v1.Container{Image: "app:1"})
			r.reg.deps.Admit = func(q Question) Answer {
				if q.Leaving[victim.UID] > time.Minute {
					return Answer{Admission: podstate.Admission{Decision: podstate.Rejected, Reason: "UnexpectedAdmissionError", Message: "no room"}}
				}
				return oneAtATime(q)
			}
			r.reg.Ready("api")
			r.reg.Set(victim, "api")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(victim.UID)) })
			highest := int32(podutil.CriticalPriority)
			critical.Spec.Priority = &highest
			r.reg.Set(critical, "api")
			time.Sleep(50 * time.Second)
			if st := r.status(critical.UID); st.Phase == v1.PodFailed {
				t.Errorf("unkillable %v, after 50 s: %+v", unkillable, st)
			}
			time.Sleep(20 * time.Second)
			if st := r.status(critical.UID); (st.Phase == v1.PodFailed) != unkillable {
				t.Errorf("unkillable %v, after 70 s: %+v", unkillable, st)
			}
		})
	}
}

func TestNobodyMakesRoomForACriticalPodThatIsWantedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.deps.Admit = oneAtATime
		r.reg.Ready("api")
		victim := newPod("victim", v1.Container{Image: "app:1"})
		r.reg.Set(victim, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(victim.UID)) })

		critical := newPod("critical", v1.Container{Image: "app:1"})
		highest := int32(podutil.CriticalPriority)
		critical.Spec.Priority = &highest
		r.reg.Set(deleted(critical, 0), "api")
		r.until("its object is deleted", time.Minute, func() bool { return r.e.isFinished(critical.UID) })
		time.Sleep(time.Minute)
		if !isReady(r.status(victim.UID)) || len(r.eventsWith("Preempting")) > 0 {
			t.Errorf("the other pod: %+v, events %q", r.status(victim.UID), r.e.said())
		}
	})
}

func TestAPodWhoseSandboxIsListedAndNotLookedAtYetCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		observed *podstate.Observed
		phase    v1.PodPhase
		want     bool
	}{
		"nothing is there":    {nil, "", false},
		"not looked at yet":   {&podstate.Observed{}, "", true},
		"its sandbox":         {&podstate.Observed{Known: true, Sandboxes: []podstate.Sandbox{{ID: "s"}}}, "", true},
		"its container alone": {&podstate.Observed{Known: true, Containers: []podstate.Container{{ID: "c"}}}, "", false},
		"it has ended":        {&podstate.Observed{}, v1.PodFailed, false},
	} {
		r := New(Config{}, Deps{})
		w, _ := newHeld(r, "u", 1)
		w.pod = newPod("p", v1.Container{})
		w.pod.Status.Phase = tc.phase
		if tc.observed != nil {
			r.observed["u"] = *tc.observed
		}
		if got := w.countsLocked(); got != tc.want {
			t.Errorf("%s: it counts: %v", name, got)
		}
	}
}

// A node with many Jobs: their pods have ended when podsync starts again, and
// one that was bound meanwhile must not be rejected for them.
func TestAPodThatHasEndedIsNotCounted(t *testing.T) {
	started := metav1.Now()
	container := func(state podstate.ContainerState) *podstate.Observed {
		return &podstate.Observed{Known: true, Sandboxes: []podstate.Sandbox{{ID: "sb"}}, Containers: []podstate.Container{{ID: "c", Name: "c", State: state}}}
	}
	for name, tc := range map[string]struct {
		status v1.PodStatus
		seen   *podstate.Observed // nil: nothing
		want   bool
	}{
		"it has ended":                            {v1.PodStatus{Phase: v1.PodSucceeded, StartTime: &started}, nil, false},
		"its containers are there":                {v1.PodStatus{Phase: v1.PodFailed, StartTime: &started}, container(podstate.StateExited), false},
		"nobody has looked at it yet":             {v1.PodStatus{Phase: v1.PodSucceeded, StartTime: &started}, &podstate.Observed{}, false},
		"somebody has written so and it runs":     {v1.PodStatus{Phase: v1.PodFailed, StartTime: &started}, container(podstate.StateRunning), true},
		"it runs":                                 {v1.PodStatus{Phase: v1.PodRunning, StartTime: &started}, container(podstate.StateRunning), true},
		"it ran before and nobody has looked yet": {v1.PodStatus{Phase: v1.PodRunning, StartTime: &started}, nil, true},
	} {
		for _, taken := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
				r.reg.Ready("api")
				synctest.Wait()
				r.reg.begin = func(*held) {} // the moment before a worker has told that its pod is stopped
				other, fresh := newPod("other", v1.Container{Image: "app:1"}), newPod("fresh", v1.Container{Image: "app:1"})
				other.Status = tc.status
				r.reg.Set(other, "api")
				r.reg.Set(fresh, "api")
				if tc.seen != nil {
					r.reg.mu.Lock()
					r.reg.observed[other.UID] = *tc.seen
					r.reg.mu.Unlock()
				}
				counted := false
				r.reg.deps.Admit = func(q Question) Answer {
					counted = len(q.Active) > 0
					return Answer{Admission: podstate.Admission{Decision: podstate.AdmissionPending}}
				}
				if taken {
					r.reg.accept(other.UID, time.Time{})
				}
				r.reg.admit(fresh.UID, Question{Pod: fresh})
				if counted != tc.want {
					t.Errorf("%s, taken over %v: counted %v, want %v", name, taken, counted, tc.want)
				}
			})
		}
	}
}

func TestAPodThatHasEndedIsNotAskedForAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		var asked []types.UID
		r.reg.deps.Admit = func(q Question) Answer {
			asked = append(asked, q.Pod.UID)
			return Answer{Admission: podstate.Admission{Decision: podstate.Rejected, Reason: "OutOfcpu", Message: "full"}}
		}
		gone := newPod("gone", v1.Container{Image: "app:1"})
		gone.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost"} // by PodGC, before it began
		r.reg.Set(gone, "api")
		time.Sleep(time.Minute)
		if st := r.status(gone.UID); len(asked) > 0 || len(r.eventsWith("OutOfcpu")) > 0 || st.Phase != v1.PodFailed || st.Reason != "NodeLost" {
			t.Errorf("asked for %v, events %v, status %+v", asked, r.e.said(), st)
		}
		if n := len(r.rt.Snapshot().Sandboxes); n > 0 {
			t.Errorf("it has %d sandboxes", n)
		}
		r.reg.Set(deleted(gone, 0), "api")
		r.until("finished", time.Minute, func() bool { return r.e.isFinished(gone.UID) })
	})
}

// The apiserver has forgotten a pod that was deleted by force, and with it whoever
// sends another in its place; it still runs until its grace period is over.
func TestAdmissionIsToldOfPodsThatWereDeletedByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 8 * time.Second}}}})
		var gone atomic.Pointer[map[types.UID]bool]
		r.reg.deps.Admit = func(q Question) Answer {
			told := maps.Clone(q.Gone)
			if gone.Store(&told); len(told) > 0 {
				return Answer{Admission: podstate.Admission{Reason: "OutOfpods", Message: "waits"}}
			}
			return Answer{Admission: podstate.Admission{Decision: podstate.Admitted}}
		}
		r.reg.Ready("api")
		old := newPod("old", v1.Container{Image: "app:1"})
		r.reg.Set(old, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(old.UID)) })
		r.reg.Remove(old.UID, "api")
		fresh := newPod("fresh", v1.Container{Image: "app:1"})
		r.reg.Set(fresh, "api")
		time.Sleep(5 * time.Second)
		if !(*gone.Load())[old.UID] || isReady(r.status(fresh.UID)) {
			t.Fatalf("gone %v, status %+v", *gone.Load(), r.status(fresh.UID))
		}
		r.until("the other runs", 10*time.Second, func() bool { return isReady(r.status(fresh.UID)) })
	})
}
