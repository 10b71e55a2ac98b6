package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAnInitContainerWithoutARecordIsTakenForDone(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"))
	w.exits["i"] = []int32{0}
	w.settle(time.Minute)
	w.drop(w.newest("i").ID)
	w.s.Reported = v1.PodStatus{}
	out := Plan(w.s)
	cs := out.Status.InitContainerStatuses[0]
	if end := cs.State.Terminated; len(out.Actions) != 0 || end == nil || end.ExitCode != 0 || end.Reason != "Completed" || end.Message != doneMessage || !cs.Ready {
		t.Fatalf("status %+v, actions %v", cs, out.Actions)
	}
	if condition(out.Status, v1.PodInitialized) != v1.ConditionTrue {
		t.Errorf("conditions %+v", out.Status.Conditions)
	}
}

func TestASidecarThatEndedAfterTheNextHadBegunHoldsNobodyUp(t *testing.T) {
	probed := func(pod *v1.Pod) *v1.Pod {
		last := &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
		last.StartupProbe = &v1.Probe{}
		return pod
	}
	for name, c := range map[string]struct {
		pod    *v1.Pod
		starts int
	}{
		"an init container has ended since": {withInit(withSidecar(testPod(v1.RestartPolicyAlways, "a"), "s"), "i"), 1},
		"another sidecar has started since": {probed(withSidecar(testPod(v1.RestartPolicyAlways, "a"), "s", "t")), 1},
		"it is the last, and has to run":    {probed(withSidecar(testPod(v1.RestartPolicyAlways, "a"), "s")), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(c.pod)
			w.exits["i"] = []int32{0}
			w.settle(500 * time.Millisecond)
			if w.count("start container a") > 0 || w.newest("s") == nil {
				t.Fatalf("it is to be on its way: %v", w.log)
			}
			w.end(w.newest("s"), 1)
			w.newest("s").Backoff = 5 * time.Minute
			if next := w.newest("t"); next != nil {
				w.s.Probes[podstate.ProbeKey{Container: "t", Type: podstate.Startup}] = podstate.ProbeResult{ContainerID: next.ID, Success: true}
			}
			w.settle(time.Minute)
			if got := w.count("start container a"); got != c.starts {
				t.Errorf("the regular container was started %d times, want %d: %v", got, c.starts, w.log)
			}
			if w.settle(10 * time.Minute); w.count("start container s") != 2 {
				t.Errorf("the sidecar starts again when its back-off is over: %v", w.log)
			}
		})
	}
}

// The shell that has ended with 0 does not know that what it ran was killed.
func TestAnInitContainerThatRanOutOfMemoryHasNotDoneItsWork(t *testing.T) {
	for _, c := range []struct {
		policy v1.RestartPolicy
		starts int
		phase  v1.PodPhase
	}{
		{v1.RestartPolicyAlways, 2, v1.PodRunning},
		{v1.RestartPolicyOnFailure, 2, v1.PodRunning},
		{v1.RestartPolicyNever, 1, v1.PodFailed},
	} {
		w := newWorld(withInit(testPod(c.policy, "a"), "i"))
		w.exits["i"] = []int32{0, 0}
		for w.newest("i") == nil {
			w.step()
		}
		w.s.Now = w.s.Now.Add(time.Second)
		w.expire()
		w.newest("i").Reason = "OOMKilled"
		w.step()
		if w.newest("a") != nil || condition(w.out.Status, v1.PodInitialized) == v1.ConditionTrue || w.out.Status.InitContainerStatuses[0].Ready {
			t.Errorf("%s: its work counts as done: %v, conditions %+v", c.policy, w.log, w.out.Status.Conditions)
		}
		w.settle(time.Minute)
		if n := w.count("start container i"); n != c.starts || w.out.Status.Phase != c.phase {
			t.Errorf("%s: started %d times, want %d; the pod is %s, want %s: %v", c.policy, n, c.starts, w.out.Status.Phase, c.phase, w.log)
		}
	}
}

// That the kernel has ended a process of it the runtime may say after its end, when podsync
// has gone on, and podsync may see so when it is started again.
func TestAnInitContainerThatWasFollowedByAnotherHasNotFailed(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		w := newWorld(withInit(testPod(policy, "a"), "i", "j", "k"))
		w.exits["i"], w.exits["j"], w.exits["k"] = []int32{0}, []int32{0}, []int32{0}
		for w.newest("j") == nil {
			w.settle(500 * time.Millisecond)
			w.s.Now = w.s.Now.Add(100 * time.Millisecond)
			w.expire()
		}
		w.newest("i").Reason = reasonOOMKilled
		if w.step(); w.out.Status.Phase != v1.PodPending {
			t.Errorf("%s: while the next one runs the pod is %s", policy, w.out.Status.Phase)
		}
		w.settle(time.Minute)
		if n := w.count("start container i"); n != 1 || w.count("start container a") != 1 || w.out.Status.Phase != v1.PodRunning {
			t.Errorf("%s: it was started %d times, and the pod is %s: %v", policy, n, w.out.Status.Phase, w.log)
		}
	}
}
