package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Source: test/e2e_node/pod_status_test.go and container_lifecycle_test.go,
// "should restart the containers in right order after the node reboot".
func TestAPodWhoseSandboxWentIsPendingWhileItsInitContainersRunAgain(t *testing.T) {
	for name, pod := range map[string]*v1.Pod{
		"init":             withInit(testPod(v1.RestartPolicyAlways, "a"), "i1"),
		"two":              withInit(testPod(v1.RestartPolicyAlways, "a"), "i1", "i2"),
		"with a sidecar":   withInit(withSidecar(withInit(testPod(v1.RestartPolicyAlways, "a"), "i1"), "side"), "i2"),
		"only a sidecar":   withSidecar(testPod(v1.RestartPolicyAlways, "a"), "side"),
		"nothing to do so": testPod(v1.RestartPolicyAlways, "a"),
	} {
		w := newWorld(pod)
		w.exits["i1"], w.exits["i2"] = []int32{0, 0}, []int32{0, 0}
		w.settle(time.Minute)
		w.s.Observed.Sandboxes[0].Ready = false
		for i := range w.s.Observed.Containers {
			if w.s.Observed.Containers[i].Live() {
				w.end(&w.s.Observed.Containers[i], 137)
			}
		}
		var phases []v1.PodPhase
		for range 1000 {
			w.step()
			if n := len(phases); n == 0 || phases[n-1] != w.out.Status.Phase {
				phases = append(phases, w.out.Status.Phase)
			}
			if st := w.out.Status; st.Phase == v1.PodPending && condition(st, v1.PodInitialized) != v1.ConditionFalse {
				t.Errorf("%s: pending and initialized: %+v", name, st.Conditions)
			}
			if st := w.out.Status; len(st.InitContainerStatuses) > 0 && st.InitContainerStatuses[0].Name == "i1" && st.InitContainerStatuses[0].State.Running != nil && st.ContainerStatuses[0].State.Running == nil && st.Phase != v1.PodPending {
				t.Errorf("%s: %s while an init container runs again", name, st.Phase)
			}
			w.s.Now = w.s.Now.Add(100 * time.Millisecond)
			w.expire()
		}
		want := []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodRunning}
		if name == "nothing to do so" {
			want = want[:1]
		}
		if !slices.Equal(phases, want) {
			t.Errorf("%s: phases %v", name, phases)
		}
	}
}

func TestNoPhaseGoesBackWithinOneSandboxNorForwardWithoutOne(t *testing.T) {
	for name, happens := range map[string]func(w *world, side *podstate.Container){
		"a sidecar crashes before the regular container starts": func(w *world, side *podstate.Container) { w.end(side, 1) },
		"the sandbox dies again": func(w *world, side *podstate.Container) {
			w.end(side, 137)
			w.s.Observed.Sandboxes[0].Ready = false
		},
	} {
		w := newWorld(withInit(withSidecar(testPod(v1.RestartPolicyAlways, "a"), "side"), "i"))
		w.exits["i"] = []int32{0, 0, 0}
		w.settle(time.Minute)
		w.s.Observed.Sandboxes[0].Ready = false
		w.end(w.newest("side"), 137)
		w.end(w.newest("a"), 137)
		w.fail = func(a podstate.Action) *Failure {
			if a.Kind == podstate.StartContainer && a.Container == "a" {
				return &Failure{Reason: "Error", Message: "not now"}
			}
			return nil
		}
		crash, anew := name[0] == 'a', false
		var phases []v1.PodPhase
		for n := 0; n < 300; n++ {
			w.step()
			if last := len(phases); last == 0 || phases[last-1] != w.out.Status.Phase {
				phases = append(phases, w.out.Status.Phase)
			}
			side := w.newest("side")
			anew = anew || w.s.Observed.Sandboxes[0].Attempt == 1 && side.SandboxID == w.s.Observed.Sandboxes[0].ID && side.Live()
			if init := w.newest("i"); anew && happens != nil && (!crash || init.RestartCount == 1 && init.State == podstate.StateExited && w.out.Status.Phase == v1.PodRunning) {
				happens(w, side)
				happens = nil
			}
			w.s.Now = w.s.Now.Add(100 * time.Millisecond)
			w.expire()
			if n == 200 {
				w.fail = nil
			}
		}
		if want := []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodRunning}; happens != nil || !slices.Equal(phases, want) {
			t.Errorf("%s (it happened: %v): phases %v, want %v", name, happens == nil, phases, want)
		}
	}
}

// Source: test/e2e_node/critical_pod_test.go, for the victims of a critical pod.
func TestAPodThatTheNodeStopsEndsWithTheNodesReasonOrAsItsContainersDo(t *testing.T) {
	for _, tc := range []struct {
		byContainers bool
		code         int32
		phase        v1.PodPhase
		reason       string
	}{
		{false, 0, v1.PodFailed, "R"},
		{false, 137, v1.PodFailed, "R"},
		{true, 0, v1.PodSucceeded, ""},
		{true, 137, v1.PodFailed, "R"},
	} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b"))
		w.settle(time.Minute)
		w.killCode = tc.code
		condition := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}
		w.s.Stop = &podstate.Stop{Reason: "R", Message: "m", ByContainers: tc.byContainers, Condition: &condition}
		w.settle(time.Minute)
		st := w.out.Status
		if st.Phase != tc.phase || st.Reason != tc.reason || (st.Message == "m") != (tc.reason != "") || reasonFor(st, v1.DisruptionTarget) == "" {
			t.Errorf("by its containers %v, exit code %d: %s %s %q, conditions %v", tc.byContainers, tc.code, st.Phase, st.Reason, st.Message, st.Conditions)
		}
	}
}

// Source: KEP-3329, and the kubelet's "API server shows terminal phase".
func TestAPhaseThatSomebodyElseHasEndedThePodWithIsNotTakenBack(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Pod = w.s.Pod.DeepCopy()
	w.s.Pod.Status.Phase, w.s.Pod.Status.Reason = v1.PodFailed, "NodeOutOfService"
	for i := range 5 {
		w.step()
		if st := w.out.Status; st.Phase != v1.PodFailed || st.Reason != "NodeOutOfService" {
			t.Errorf("step %d: phase %s, reason %q; stopped %t", i, st.Phase, st.Reason, w.out.Stopped)
		}
	}
	st := w.out.Status
	if !w.out.Stopped || st.ContainerStatuses[0].State.Terminated == nil || condition(st, v1.PodReady) != v1.ConditionFalse {
		t.Errorf("at last: %+v", st)
	}
}

func TestWhatOthersSayOfAPodThatHasEndedStaysTheirs(t *testing.T) {
	const theirs = v1.PodConditionType("example.com/registered")
	w := newWorld(testPod(v1.RestartPolicyNever, "a"))
	say := func(conditions ...v1.PodCondition) {
		pod := w.s.Pod.DeepCopy()
		pod.Status.Conditions = conditions
		w.s.Pod = pod
	}
	say(v1.PodCondition{Type: theirs, Status: v1.ConditionTrue})
	w.s.Stop = &podstate.Stop{Reason: "Evicted", Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	w.settle(time.Hour)
	before := w.out.Status
	if before.Phase != v1.PodFailed || condition(before, theirs) != v1.ConditionTrue {
		t.Fatalf("status %+v", before)
	}
	for _, tc := range []struct {
		name string
		say  []v1.PodCondition
		want v1.ConditionStatus
	}{
		{"changed", []v1.PodCondition{{Type: theirs, Status: v1.ConditionFalse}}, v1.ConditionFalse},
		{"taken away", nil, "absent"},
	} {
		say(tc.say...)
		w.settle(time.Hour)
		st := w.out.Status
		if got := condition(st, theirs); got != tc.want {
			t.Errorf("%s: it is told as %s, want %s", tc.name, got, tc.want)
		}
		if condition(st, v1.DisruptionTarget) != v1.ConditionTrue || condition(st, v1.PodReady) != v1.ConditionFalse || len(st.ContainerStatuses) != len(before.ContainerStatuses) {
			t.Errorf("%s: the pod's own part has changed: %+v", tc.name, st)
		}
	}
}
