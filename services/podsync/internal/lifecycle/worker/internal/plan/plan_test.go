package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/raced"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func condition(st v1.PodStatus, t v1.PodConditionType) v1.ConditionStatus {
	for _, c := range st.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return "absent"
}

func kinds(actions []podstate.Action) map[podstate.Kind]int {
	m := map[podstate.Kind]int{}
	for _, a := range actions {
		m[a.Kind]++
	}
	return m
}

func TestNothingIsDecidedBeforeTheRuntimeWasSeen(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Observed.Known = false
	w.s.Reported.Phase = v1.PodRunning
	out := Plan(w.s)
	if len(out.Actions) != 0 || out.Status.Phase != v1.PodRunning {
		t.Fatalf("actions %v, phase %s; want none and the reported phase", out.Actions, out.Status.Phase)
	}
}

func TestPullsVolumesAndSandboxBeginTogether(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a", "b"), "i"))
	got := kinds(Plan(w.s).Actions)
	if got[podstate.PullImage] != 3 || got[podstate.SetupVolumes] != 1 || got[podstate.MakeSandbox] != 1 || len(got) != 3 {
		t.Fatalf("first actions are %v", got)
	}
}

func TestAPodRunsAndThenThereIsNothingToDo(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b"))
	w.settle(time.Minute)
	st := w.out.Status
	if st.Phase != v1.PodRunning || condition(st, v1.PodReady) != v1.ConditionTrue || st.PodIP != "10.88.0.2" || st.HostIP != "10.0.0.1" {
		t.Fatalf("status %+v", st)
	}
	if again := Plan(w.s); len(again.Actions) != 0 || !again.Wake.IsZero() {
		t.Fatalf("a settled pod still has actions %v or a wake-up %v", again.Actions, again.Wake)
	}
}

func TestPendingAdmissionStartsNothingAndShowsWhy(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Admission = podstate.Admission{Decision: podstate.AdmissionPending, Message: "the device plugin is not back yet"}
	out := Plan(w.s)
	if len(out.Actions) != 0 || len(out.Waits) != 1 || out.Waits[0].Reason != "the device plugin is not back yet" || out.Status.Phase != v1.PodPending {
		t.Fatalf("out %+v", out)
	}
}

func TestARejectedPodFailsAndKeepsItsReason(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Admission = podstate.Admission{Decision: podstate.Rejected, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"}
	w.settle(time.Minute)
	st := w.out.Status
	if st.Phase != v1.PodFailed || st.Reason != "OutOfcpu" || st.Message != "Pod was rejected: Node didn't have enough resource: cpu" || len(st.ContainerStatuses) != 0 {
		t.Fatalf("status %+v", st)
	}
}

func TestInitContainersRunOneAfterTheOther(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i1", "i2"))
	w.exits["i1"], w.exits["i2"] = []int32{0}, []int32{0}
	for w.newest("i1") == nil {
		w.step()
	}
	w.step()
	if w.newest("i2") != nil || w.newest("a") != nil {
		t.Fatal("the second init container or the container started while the first init container runs")
	}
	if r := w.out.Status.ContainerStatuses[0].State.Waiting; r == nil || r.Reason != "PodInitializing" {
		t.Fatalf("container state %+v", w.out.Status.ContainerStatuses[0].State)
	}
	w.settle(time.Minute)
	if w.out.Status.Phase != v1.PodRunning || condition(w.out.Status, v1.PodInitialized) != v1.ConditionTrue {
		t.Fatalf("status %+v", w.out.Status)
	}
	if w.count("start container i1") != 1 || w.count("start container i2") != 1 {
		t.Fatalf("log %v", w.log)
	}
}

func TestAFailedInitContainerFailsAPodThatNeverRestarts(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyNever, "a"), "i"))
	w.exits["i"] = []int32{3}
	w.settle(time.Minute)
	if w.out.Status.Phase != v1.PodFailed || w.count("start container a") != 0 || w.count("start container i") != 1 {
		t.Fatalf("phase %s, log %v", w.out.Status.Phase, w.log)
	}
}

func TestASidecarStartsBeforeAndEndsAfterTheContainers(t *testing.T) {
	w := newWorld(withSidecar(testPod(v1.RestartPolicyNever, "a"), "side"))
	w.exits["a"] = []int32{0}
	w.settle(time.Minute)
	if w.out.Status.Phase != v1.PodSucceeded {
		t.Fatalf("phase %s, log %v", w.out.Status.Phase, w.log)
	}
	if w.count("kill container side") != 1 || w.count("kill container a") != 0 {
		t.Fatalf("log %v", w.log)
	}
}

func TestDeletionEndsEverythingAndThenTheObject(t *testing.T) {
	w := newWorld(withSidecar(testPod(v1.RestartPolicyAlways, "a"), "side"))
	w.settle(time.Minute)
	now, grace := metav1.NewTime(w.s.Now.Add(30*time.Second)), int64(30)
	w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &now, &grace
	w.log = nil
	w.step()
	if len(w.log) != 2 || w.count("kill container a") != 1 || w.count("begin stop side") != 1 {
		t.Fatalf("first the container alone is stopped, got %v", w.log)
	}
	w.settle(time.Minute)
	if !w.s.Cleaned.API || w.count("kill container side") != 1 {
		t.Fatalf("log %v", w.log)
	}
	w.s.Removed = true
	w.settle(time.Minute)
	if !w.out.Done || len(w.s.Observed.Containers)+len(w.s.Observed.Sandboxes) != 0 || !w.s.Cleaned.Directories {
		t.Fatalf("left over: %+v, done %v", w.s.Observed, w.out.Done)
	}
}

func TestAShrunkGracePeriodReplacesTheRunningStop(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	id := w.newest("a").ID
	key := podstate.Key{Kind: podstate.KillContainer, Object: id}
	w.s.InFlight[key] = podstate.Action{Key: key, GraceSeconds: 30, GraceTotalSeconds: 30}
	w.s.EndSince = w.s.Now
	at, grace := metav1.NewTime(w.s.Now.Add(5*time.Second)), int64(5)
	w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &at, &grace
	out := Plan(w.s)
	if len(out.Actions) != 1 || !out.Actions[0].Replace || out.Actions[0].GraceSeconds != 5 {
		t.Fatalf("actions %+v", out.Actions)
	}
	w.s.InFlight[key] = podstate.Action{Key: key, GraceSeconds: 5, GraceTotalSeconds: 5}
	if out := Plan(w.s); len(out.Actions) != 0 {
		t.Fatalf("the same period is asked for again: %+v", out.Actions)
	}
}

func TestAPodThatEndsCancelsWhatIsInTheWay(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	key := podstate.Key{Kind: podstate.MakeSandbox}
	w.s.InFlight[key] = podstate.Action{Key: key}
	now := metav1.NewTime(w.s.Now)
	w.s.Pod.DeletionTimestamp = &now
	out := Plan(w.s)
	if len(out.Cancel) != 1 || out.Cancel[0] != key || out.Stopped {
		t.Fatalf("out %+v", out)
	}
}

func TestAnOrphanIsStoppedAndRemoved(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Pod, w.s.Cleaned = nil, Cleaned{}
	w.settle(time.Minute)
	if !w.out.Done || len(w.s.Observed.Containers)+len(w.s.Observed.Sandboxes) != 0 {
		t.Fatalf("left over: %+v", w.s.Observed)
	}
}

func TestADeadSandboxIsReplacedWithItsContainers(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"))
	w.exits["i"] = []int32{0, 0}
	w.settle(time.Minute)
	w.s.Observed.Sandboxes[0].Ready = false
	w.end(w.newest("a"), 137)
	w.settle(10 * time.Minute)
	if sb := w.s.Observed.Sandboxes[0]; sb.Attempt != 1 || !sb.Ready {
		t.Fatalf("sandbox %+v", sb)
	}
	if c := w.newest("a"); c.State != podstate.StateRunning || c.RestartCount != 1 || w.count("start container i") != 2 {
		t.Fatalf("container %+v, log %v", c, w.log)
	}
}

func TestDeadlineExceeded(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	limit := int64(60)
	pod.Spec.ActiveDeadlineSeconds = &limit
	w := newWorld(pod)
	w.settle(10 * time.Minute)
	if st := w.out.Status; st.Phase != v1.PodFailed || st.Reason != "DeadlineExceeded" || w.s.Now.Sub(start) < time.Minute {
		t.Fatalf("status %+v at %v", st, w.s.Now)
	}
}

func TestADeletionDoesNotHideThatAPodIsPastItsDeadline(t *testing.T) {
	for name, deleted := range map[string]time.Duration{"after the deadline": 61 * time.Second, "before the deadline": 59 * time.Second} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyNever, "a")
			limit, grace := int64(60), int64(30)
			pod.Spec.ActiveDeadlineSeconds, pod.Spec.TerminationGracePeriodSeconds = &limit, &grace
			w := newWorld(pod)
			w.settle(50 * time.Second)
			for _, at := range []time.Duration{59 * time.Second, 61 * time.Second} {
				w.s.Now = start.Add(at)
				if at == deleted {
					gone := metav1.NewTime(w.s.Now)
					w.s.Pod = w.s.Pod.DeepCopy()
					w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds, w.s.DeletionSince = &gone, &grace, w.s.Now
				}
				// Its container takes its time to end.
				w.out = Plan(w.s)
				if w.s.Reported = w.out.Status; w.out.Terminating && w.s.EndSince.IsZero() {
					w.s.EndSince = w.s.Now
				}
			}
			w.end(w.newest("a"), 0) // it was asked to, and takes that for a success
			w.settle(10 * time.Minute)
			if st := w.out.Status; st.Phase != v1.PodFailed || st.Reason != "DeadlineExceeded" {
				t.Fatalf("phase %s, reason %q", st.Phase, st.Reason)
			}
		})
	}
}

func TestAPodPastItsDeadlineDoesNotRunAgainAfterARestartOfTheAgent(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	limit := int64(60)
	pod.Spec.ActiveDeadlineSeconds = &limit
	for name, restart := range map[string]time.Duration{"after the deadline": 2 * time.Minute, "before the deadline": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(pod)
			w.s.Static = true
			w.settle(restart)
			w.s.Now = start.Add(restart)
			// What no apiserver keeps for a static pod is gone with the process.
			w.s.Reported, w.s.EndSince, w.s.Cleaned, w.s.Volumes, w.s.Stops = v1.PodStatus{}, time.Time{}, Cleaned{}, Volumes{}, map[string]ContainerStop{}
			w.log = nil
			w.settle(10 * time.Minute)
			if st := w.out.Status; st.Phase != v1.PodFailed || st.Reason != "DeadlineExceeded" || !st.StartTime.Time.Equal(start) || w.count("start container a") != 0 {
				t.Fatalf("status %+v, log %v", st, w.log)
			}
			if at := w.newest("a").FinishedAt.Sub(start); at != time.Minute {
				t.Fatalf("it was stopped after %v", at)
			}
		})
	}
}

func TestAnEvictedPodFailsOnlyWhenItHasStopped(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Stop = &podstate.Stop{Reason: "Evicted", Message: "The node was low on resource: memory.", Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}
	w.step()
	if w.out.Status.Phase != v1.PodRunning {
		t.Fatalf("phase %s while the container still runs", w.out.Status.Phase)
	}
	w.settle(time.Minute)
	if st := w.out.Status; st.Phase != v1.PodFailed || st.Reason != "Evicted" || condition(st, v1.DisruptionTarget) != v1.ConditionTrue {
		t.Fatalf("status %+v", st)
	}
}

func TestAPlanConvergesForEveryShapeOfPod(t *testing.T) {
	for seed := range raced.Share(3000) {
		w := randomWorld(int64(seed))
		w.settle(3 * time.Hour)
		w.fail = nil
		w.settle(3 * time.Hour)
		if out := Plan(w.s); len(out.Actions) != 0 || (!out.Wake.IsZero() && out.Wake.Before(w.s.Now)) {
			t.Fatalf("seed %d: settled, but still %v", seed, out.Actions)
		}
		if w.out.Status.Phase == v1.PodPending || w.out.Status.Phase == "" {
			t.Fatalf("seed %d: phase %q, log %v", seed, w.out.Status.Phase, w.log)
		}
		w.s.Removed = true
		w.settle(time.Hour)
		if !w.out.Done || len(w.s.Observed.Containers)+len(w.s.Observed.Sandboxes) != 0 {
			t.Fatalf("seed %d: left over %+v", seed, w.s.Observed)
		}
	}
}

func TestAStoppedSidecarOfAFinishedPodDoesNotStartAgain(t *testing.T) {
	w := newWorld(withSidecar(testPod(v1.RestartPolicyNever, "a"), "s0", "s1"))
	w.exits["a"] = []int32{0}
	w.settle(500 * time.Millisecond)
	a, s0, s1 := w.newest("a"), w.newest("s0"), w.newest("s1")
	w.end(a, 0)
	w.s.EndSince = w.s.Now
	w.end(s1, 0)
	kill := podstate.Key{Kind: podstate.KillContainer, Object: s0.ID}
	w.s.InFlight[kill] = podstate.Action{Key: kill, Container: "s0", ID: s0.ID, GraceSeconds: 30, GraceTotalSeconds: 30}
	out := Plan(w.s)
	if !out.Terminating || len(out.Actions) > 0 {
		t.Fatalf("terminating %v, actions %+v; the pod has come to its end", out.Terminating, out.Actions)
	}
}

func TestADeletionOfAPodThatEndsAlreadyGivesItsOwnPeriod(t *testing.T) {
	for _, tc := range []struct {
		name                string
		ending, since, want int64 // seconds
	}{
		{"the deletion's period counts from the deletion", 14, 0, 5},
		{"and runs from there", 14, 2, 3},
		{"but no longer than what was left before", 27, 0, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.settle(time.Minute)
			grace := int64(5)
			w.s.Now = w.s.Now.Truncate(time.Second)
			at := metav1.NewTime(w.s.Now.Add(time.Duration(grace-tc.since) * time.Second))
			w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &at, &grace
			w.s.EndSince = w.s.Now.Add(-time.Duration(tc.ending) * time.Second)
			w.s.DeletionSince = w.s.Now.Add(-time.Duration(tc.since) * time.Second)
			w.s.Stops[w.newest("a").ID] = asked(w.s.EndSince, podstate.CauseEnd, 30)
			out := Plan(w.s)
			if len(out.Actions) != 1 || out.Actions[0].GraceSeconds != tc.want {
				t.Fatalf("actions %+v, want a kill with %d s", out.Actions, tc.want)
			}
		})
	}
}
