package worker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// evicted is a stop as an eviction's.
func evicted(grace int64) podstate.Stop {
	return podstate.Stop{Reason: "Evicted", Message: "too little memory", GraceSeconds: &grace, Condition: &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: "too little memory",
	}}
}

// runningPod is a rig with one pod, whose process takes no signal when it is stubborn.
func runningPod(t *testing.T, term fakecri.Term) (*rig, *v1.Pod) {
	r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(term)}})
	r.reg.Ready("api")
	pod := newPod("p", v1.Container{Image: "app:1"})
	r.reg.Set(pod, "api")
	r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
	return r, pod
}

func TestAPodThatTheNodeStopsFailsWithItsReasonOnceItHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{After: 3 * time.Second})
		if already, err := r.reg.Stop(t.Context(), pod.UID, evicted(30), map[string]string{"starved_resource": "memory"}); already || err != nil {
			t.Errorf("already %v, %v", already, err)
		}
		if already, err := r.reg.Stop(t.Context(), pod.UID, podstate.Stop{Reason: "Other"}, nil); !already || err != nil {
			t.Errorf("once more: already %v, %v", already, err)
		}
		if took := r.until("failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed }); took < 3*time.Second {
			t.Errorf("failed after %v, its container ended after 3s", took)
		}
		st := r.status(pod.UID)
		if st.Reason != "Evicted" || st.Message != "too little memory" || st.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("status %+v", st)
		}
		if c := st.Conditions; len(c) == 0 || c[0].Type != v1.DisruptionTarget || c[0].Reason != v1.PodReasonTerminationByKubelet {
			t.Errorf("conditions %+v", c)
		}
		if got := r.eventsWith("Evicted"); len(got) != 1 || got[0] != " Warning Evicted too little memory map[starved_resource:memory]" {
			t.Errorf("events %q", got)
		}
	})
}

func TestAStopThatWasAnsweredOutlivesPodsyncsDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{Ignore: true})
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(20), nil); err != nil {
			t.Fatal(err)
		}
		r.stop() // before the worker has done anything
		r.start()
		r.reg.Set(pod, "api")
		r.reg.Ready("api")
		if took := r.until("failed", time.Hour, func() bool { return r.status(pod.UID).Phase == v1.PodFailed }); took > 30*time.Second {
			t.Errorf("took %v with a grace period of 20s", took)
		}
		if st := r.status(pod.UID); st.Reason != "Evicted" || st.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestASecondStopGivesLessTimeAndNeverMore(t *testing.T) {
	for _, tc := range []struct {
		name         string
		first, later int64
		at           time.Duration
		want         time.Duration // from the first
		deleted      bool
	}{
		{"less", 25, 3, 10 * time.Second, 13 * time.Second, false},
		{"none", 25, 0, 10 * time.Second, 12 * time.Second, false},
		{"more", 10, 25, 5 * time.Second, 10 * time.Second, false},
		{"more than the pod's own", 100, 200, 5 * time.Second, 30 * time.Second, false},
		{"less for what is being deleted", 600, 4, 20 * time.Second, 24 * time.Second, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, pod := runningPod(t, fakecri.Term{Ignore: true})
				began := time.Now()
				if tc.deleted {
					r.reg.Set(deleted(pod, tc.first), "api")
				} else if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(tc.first), nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tc.at)
				if already, err := r.reg.Stop(t.Context(), pod.UID, evicted(tc.later), nil); !already || err != nil {
					t.Errorf("already %v, %v", already, err)
				}
				r.until("failed", time.Hour, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
				if took := time.Since(began); took < tc.want || took > tc.want+time.Second {
					t.Errorf("ended after %v, want %v", took, tc.want)
				}
				if st := r.status(pod.UID); st.Reason != "Evicted" {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

func TestADeletionOfAPodThatTheNodeStopsKeepsItsReasonAndDeletesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{Ignore: true})
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(20), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		r.reg.Set(deleted(pod, 1), "api")
		if took := r.until("deleted", time.Minute, func() bool { return r.e.isFinished(pod.UID) }); took > 4*time.Second {
			t.Errorf("took %v", took)
		}
		if st := r.status(pod.UID); st.Phase != v1.PodFailed || st.Reason != "Evicted" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestTheNodeStopsNoCriticalPodAndNoneThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": fakecri.Exits(time.Second, 0)}})
		r.reg.Ready("api")
		static, important, over := newPod("static", v1.Container{Image: "app:1"}), newPod("important", v1.Container{Image: "app:1"}), newPod("over", v1.Container{Image: "app:1"})
		priority := int32(podutil.CriticalPriority)
		important.Spec.Priority, over.Spec.RestartPolicy = &priority, v1.RestartPolicyNever
		r.reg.Set(static, "file")
		r.reg.Set(important, "api")
		r.reg.Set(over, "api")
		r.until("it has ended", time.Minute, func() bool { return r.status(over.UID).Phase == v1.PodSucceeded })
		for _, tc := range []struct {
			pod  *v1.Pod
			want error
		}{{static, ErrCritical}, {important, ErrCritical}, {over, ErrEnded}, {newPod("other"), ErrNoPod}} {
			if _, err := r.reg.Stop(t.Context(), tc.pod.UID, evicted(1), nil); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.pod.Name, err, tc.want)
			}
			if r.ends.Of(tc.pod.UID) != nil {
				t.Errorf("%s is to be ended by the next podsync", tc.pod.Name)
			}
		}
		if got := r.eventsWith("Evicted"); len(got) != 0 {
			t.Errorf("events %q", got)
		}
	})
}

func TestAStopOfAPodThatEndsMeanwhileIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{})
		r.put = func() error {
			r.reg.Remove(pod.UID, "api")
			time.Sleep(time.Minute)
			return nil
		}
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(1), nil); !errors.Is(err, ErrNoPod) {
			t.Errorf("%v", err)
		}
		if r.ends.Of(pod.UID) != nil {
			t.Error("the next podsync would end it")
		}
	})
}

func TestAStopOfAPodThatEndsMeanwhileLeavesHowItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": fakecri.Exits(10*time.Second, 0)}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.put = func() error {
			r.put = nil
			time.Sleep(time.Minute)
			return r.ends.PutLast(t.Context(), pod.UID, &v1.PodStatus{Phase: v1.PodSucceeded})
		}
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(1), nil); !errors.Is(err, ErrEnded) {
			t.Errorf("%v", err)
		}
		if stop, last := r.ends.Of(pod.UID), r.ends.Last(pod.UID); stop != nil || last == nil || last.Phase != v1.PodSucceeded {
			t.Errorf("kept are the decision %v and the status %v", stop, last)
		}
	})
}

func TestADiskThatDoesNotAnswerKeepsNoPodAliveForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{})
		r.hang = true
		asked := time.Now()
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(1), nil); !errors.Is(err, ErrNotKept) || time.Since(asked) != keepWithin {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		if took := r.until("failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed }); took > time.Second {
			t.Errorf("it took %v more", took)
		}
	})
}

func TestWhichPodsTheNodeEndsIsKnownUntilNothingOfThemIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{After: 3 * time.Second})
		if all := r.reg.Endings(); len(all) != 0 {
			t.Errorf("while it runs: %+v", all)
		}
		began := time.Now()
		for _, stop := range []podstate.Stop{evicted(30), {Reason: "Other", GraceSeconds: evicted(7).GraceSeconds}} {
			if _, err := r.reg.Stop(t.Context(), pod.UID, stop, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		all := r.reg.Endings()
		if len(all) != 1 || all[0].UID != pod.UID || all[0].Stop.Reason != "Evicted" || *all[0].Stop.GraceSeconds != 7 || !all[0].Since.Equal(began) || all[0].Ended {
			t.Errorf("while it ends: %+v", all)
		}
		r.stop()
		r.start()
		r.reg.Set(pod, "api")
		r.reg.Ready("api")
		if all := r.reg.Endings(); len(all) != 1 || all[0].Stop.Reason != "Evicted" || all[0].Ended {
			t.Errorf("after podsync's death: %+v", all)
		}
		r.until("failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		r.until("nothing of it is left", time.Minute, func() bool { return len(r.reg.Endings()) == 0 })
	})
}

func TestAPodThatEndsIsNamedThoughItsSourceHasDroppedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{After: 3 * time.Second})
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(30), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r.reg.Remove(pod.UID, "api")
		if all := r.reg.Endings(); len(all) != 1 || all[0].Namespace != pod.Namespace || all[0].Name != pod.Name || all[0].Stop.Reason != "Evicted" {
			t.Errorf("%+v", all)
		}
		r.until("nothing of it is left", time.Minute, func() bool { return len(r.reg.Endings()) == 0 })
	})
}

// The decision is on the disk, and what runs is in the runtime.
func TestAPodThatNoSourceHasEndsForTheReasonOfBeforePodsyncsDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{After: 3 * time.Second})
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(30), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r.stop()
		r.start()
		r.reg.Ready("api")
		r.until("it is ended", time.Minute, func() bool { return len(r.reg.Endings()) > 0 })
		if all := r.reg.Endings(); len(all) != 1 || all[0].UID != pod.UID || all[0].Stop.Reason != "Evicted" || all[0].Ended {
			t.Errorf("%+v", all)
		}
		r.until("nothing of it is left", time.Minute, func() bool { return len(r.reg.Endings()) == 0 })
		synctest.Wait()
		if r.ends.Of(pod.UID) != nil {
			t.Error("what is over is still kept")
		}
	})
}

func TestExplainSaysWhyTheNodeEndsAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := runningPod(t, fakecri.Term{Ignore: true})
		for _, grace := range []int64{20, 5} {
			if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(grace), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		why, _ := r.reg.Explain(pod.UID)
		var steps, waits []string
		for _, e := range why.Timeline {
			steps = append(steps, e.What+" "+e.Detail)
		}
		for _, w := range why.Waits {
			waits = append(waits, w.Kind+" "+w.Reason)
		}
		if all := strings.Join(steps, "\n"); !strings.Contains(all, "the node ends it Evicted: too little memory\n") || !strings.Contains(all, "the node ends it sooner grace period 5 s") {
			t.Errorf("timeline %q", steps)
		}
		if all := strings.Join(waits, "\n"); !strings.Contains(all, "termination the node ends the pod for a reason of its own, Evicted: too little memory") {
			t.Errorf("waits %q", waits)
		}
	})
}
