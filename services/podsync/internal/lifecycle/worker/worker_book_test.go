package worker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func runsOn(end fakecri.Term) fakecri.Script {
	return fakecri.Script{Runs: []fakecri.Run{{For: -1}}, OnTerm: end}
}

// eventsWith are the events with a reason, each with its container.
func (r *rig) eventsWith(reason string) []string {
	return slices.DeleteFunc(r.e.said(), func(e string) bool { return !strings.Contains(e, " "+reason+" ") })
}

func deleted(pod *v1.Pod, grace int64) *v1.Pod {
	gone := pod.DeepCopy()
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	gone.DeletionTimestamp, gone.DeletionGracePeriodSeconds = &at, &grace
	return gone
}

func TestSidecarsEndAfterTheirHooksAndThoseThatTheyServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1", "side:1"}, Scripts: map[string]fakecri.Script{
			"app:1": runsOn(fakecri.Term{After: 4 * time.Second}), "side:1": runsOn(fakecri.Term{After: time.Second}),
		}})
		always := v1.ContainerRestartPolicyAlways
		pod := newPod("p", v1.Container{Image: "app:1"})
		for _, name := range []string{"x", "y"} {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: name, Image: "side:1", ImagePullPolicy: v1.PullIfNotPresent, RestartPolicy: &always})
		}
		pod.Spec.InitContainers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 2}}}
		r.reg.Ready("api")
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Set(deleted(pod, 30), "api")
		synctest.Wait()
		if got := r.eventsWith("Killing"); len(got) != 3 {
			t.Errorf("not every stop is announced at once: %q", got)
		}
		if took := r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) }); took < 6*time.Second || took > 6200*time.Millisecond {
			t.Errorf("it took %v; 4 s, 1 s and 1 s one after the other make 6", took)
		}
		if got := r.eventsWith("Killing"); len(got) != 3 {
			t.Errorf("stops are announced more than once: %q", got)
		}
	})
}

func TestAShorterPeriodDoesNotCutAHookThatFitsInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		pod := newPod("p", v1.Container{Image: "app:1", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 6}}}})
		r.reg.Ready("api")
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Set(deleted(pod, 30), "api")
		time.Sleep(2 * time.Second)
		r.reg.Set(deleted(pod, 8), "api")
		if took := r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) }); took < 3900*time.Millisecond || took > 4200*time.Millisecond {
			t.Errorf("it took %v more, the hook 4 s", took)
		}
		if got := r.eventsWith("FailedPreStopHook"); len(got) != 0 {
			t.Errorf("events %q", got)
		}
	})
}

func TestADeletionCutsAPostStartHookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := runsOn(fakecri.Term{})
		hangs.Exec = func(fakecri.ExecCall) fakecri.ExecResult { return fakecri.ExecResult{After: 100 * time.Hour} }
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": hangs}})
		pod := newPod("p", v1.Container{Image: "app:1", Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"wait"}}}}})
		r.reg.Ready("api")
		r.reg.Set(pod, "api")
		time.Sleep(3 * time.Hour)
		if cs := r.status(pod.UID).ContainerStatuses[0]; cs.State.Waiting == nil || cs.RestartCount != 0 {
			t.Fatalf("after three hours: %+v", cs)
		}
		r.reg.Set(deleted(pod, 30), "api")
		if took := r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) }); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAllContainersRestartWhateverDies(t *testing.T) {
	for name, restart := range map[string]bool{"podsync goes on": false, "podsync restarts in the middle": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"app:1", "cause:1", "init:1"}, Scripts: map[string]fakecri.Script{
					"app:1": runsOn(fakecri.Term{Ignore: true}), "init:1": {Runs: []fakecri.Run{{For: time.Second}}},
					"cause:1": {Runs: []fakecri.Run{{For: 10 * time.Second, Code: 42}, {For: -1}}},
				}})
				pod := newPod("p", v1.Container{Image: "app:1"}, v1.Container{Image: "cause:1"})
				never := v1.ContainerRestartPolicyNever
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
				pod.Spec.Containers[1].RestartPolicy = &never
				pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{
					Action:    v1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
				}}
				pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "init:1", ImagePullPolicy: v1.PullIfNotPresent}}
				r.reg.Ready("api")
				r.reg.Set(pod, "api")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				time.Sleep(11 * time.Second) // the other container is being killed, and ignores that
				if restart {
					known := pod.DeepCopy()
					known.Status = r.status(pod.UID)
					r.stop()
					r.start()
					r.reg.Set(known, "api")
					r.reg.Ready("api")
				}
				r.until("ready again", time.Minute, func() bool {
					st := r.status(pod.UID)
					return isReady(st) && st.ContainerStatuses[0].RestartCount == 1 && st.ContainerStatuses[1].RestartCount == 1 && st.InitContainerStatuses[0].RestartCount == 1
				})
				if n := len(r.rt.Snapshot().Sandboxes); n != 1 {
					t.Errorf("%d sandboxes", n)
				}
				if last := r.status(pod.UID).ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "RestartingAllContainers" {
					t.Errorf("last state %+v", last)
				}
			})
		})
	}
}

func TestAPodThatTheRuntimeDoesNotKillInTimeIsToldOf(t *testing.T) {
	for name, hang := range map[string]bool{"it kills": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{
					Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{Ignore: true})},
					Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
						return fakecri.Fault{Hang: hang && m == "StopContainer"}
					},
				})
				pod := newPod("p", v1.Container{Image: "app:1"})
				r.reg.Ready("api")
				r.reg.Set(pod, "api")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				r.end(pod.UID, podstate.Stop{Reason: "Evicted", Message: "low"})
				time.Sleep(44 * time.Second)
				early := r.eventsWith("ExceededGracePeriod")
				time.Sleep(10 * time.Minute)
				if got := r.eventsWith("ExceededGracePeriod"); len(early) != 0 || (len(got) == 1) != hang {
					t.Errorf("before its time %q, after it %q", early, got)
				}
			})
		})
	}
}
