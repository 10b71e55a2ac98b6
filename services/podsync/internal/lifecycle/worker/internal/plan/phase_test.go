package plan

import (
	"slices"
	"strings"
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

// All regular containers have done their work; the sidecar's exit on SIGTERM matches.
func TestAPodThatHasDoneItsWorkTellsSo(t *testing.T) {
	pod := restartingPod("side")
	w := newWorld(pod)
	w.exits["init"], w.exits["a"], w.exits["b"] = []int32{0, 0}, []int32{0}, []int32{0}
	w.killCode = exitForAll
	w.settle(time.Hour)
	st := w.out.Status
	for _, cs := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
		if cs.Name != "side" && (cs.State.Terminated == nil || cs.State.Terminated.ExitCode != 0) {
			t.Errorf("container %s: %+v, want that it exited with 0", cs.Name, cs.State)
		}
	}
	if st.Phase != v1.PodSucceeded || condition(st, v1.PodInitialized) != v1.ConditionTrue {
		t.Errorf("phase %s, initialized %s", st.Phase, condition(st, v1.PodInitialized))
	}
}

func phaseOf(s *State, ended bool) v1.PodPhase {
	p := newPlanner(s)
	p.findRound()
	return p.phase(ended)
}

// The cases stand in the order in which phase asks: the first that fits counts.
func TestThePhaseIsTheFirstRowThatFits(t *testing.T) {
	always, onFailure, never := v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	init := func(p *v1.Pod) *v1.Pod { return withInit(p, "i") }
	side := func(p *v1.Pod) *v1.Pod { return withSidecar(p, "s") }
	for _, tc := range []struct {
		row    string
		policy v1.RestartPolicy
		with   func(*v1.Pod) *v1.Pod
		words  string // separated by commas
		ended  bool
		want   v1.PodPhase
	}{
		{"1: an init container failed for good", never, init, "i 3", false, v1.PodFailed},
		{"1 not: it is restartable", always, init, "i 3", false, v1.PodPending},
		{"2: an init container has no status", always, init, "", false, v1.PodPending},
		{"2: an init container runs", never, init, "i running", false, v1.PodPending},
		{"2: an init container is made", never, init, "i created", false, v1.PodPending},
		{"2 not: it is done", never, init, "i 0,a running,b running", false, v1.PodRunning},
		{"2 not: its record was removed after it was done", never, init, "a running,b running", false, v1.PodRunning},
		{"3: a sidecar runs and is not started", always, side, "s unready", false, v1.PodPending},
		{"3: a sidecar's postStart hook runs", always, side, "s starting", false, v1.PodPending},
		{"3: a sidecar was never made", always, side, "", false, v1.PodPending},
		{"3: a sidecar is in no known state", always, side, "s unknown", false, v1.PodPending},
		{"3 not: a regular container has started", always, side, "s unready,a running,b running", false, v1.PodRunning},
		{"4: a container waits for its first start", always, nil, "a running", false, v1.PodPending},
		{"4: a container is made and not started", always, nil, "a running,b created", false, v1.PodPending},
		{"4: a container's first postStart hook runs", always, nil, "a running,b starting", false, v1.PodPending},
		{"5: all run", always, nil, "a running,b running", false, v1.PodRunning},
		{"5: one runs, one has ended", never, nil, "a running,b 1", false, v1.PodRunning},
		{"5: only the sidecar runs", never, side, "s running,a 0,b 0", false, v1.PodRunning},
		{"5 not: one is unknown", always, nil, "a running,b unknown", false, v1.PodPending},
		{"6: all ended well, and the pod has ended", always, nil, "a 0,b 0", true, v1.PodSucceeded},
		{"6: one failed, and the pod has ended", always, nil, "a 0,b 1", true, v1.PodFailed},
		{"6: a sidecar that failed does not count", always, side, "s 1,a 0,b 0", true, v1.PodSucceeded},
		{"7: one will start again", onFailure, nil, "a 0,b 1", false, v1.PodRunning},
		{"7: all will start again", always, nil, "a 0,b 0", false, v1.PodRunning},
		{"8: all ended well", never, nil, "a 0,b 0", false, v1.PodSucceeded},
		{"8: all ended well, though failures restart", onFailure, nil, "a 0,b 0", false, v1.PodSucceeded},
		{"8: one failed", never, nil, "a 0,b 1", false, v1.PodFailed},
		{"8: a terminated sidecar is ignored", never, side, "s 137,a 0,b 0", false, v1.PodSucceeded},
		{"9: one has ended, one is unknown", never, nil, "a 0,b unknown", false, v1.PodPending},
	} {
		t.Run(tc.row, func(t *testing.T) {
			pod := testPod(tc.policy, "a", "b")
			if tc.with != nil {
				pod = tc.with(pod)
			}
			var words []string
			if tc.words != "" {
				words = strings.Split(tc.words, ",")
			}
			s := scene(pod, words...)
			if got := phaseOf(&s, tc.ended); got != tc.want {
				t.Errorf("phase %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAStaticPodThatWouldStartAgainIsRunningEvenAtItsEnd(t *testing.T) {
	s := scene(testPod(v1.RestartPolicyAlways, "a"), "a 1")
	s.Static = true
	if got := phaseOf(&s, true); got != v1.PodRunning { // row 7
		t.Errorf("phase %s", got)
	}
}

// Each case is something that decides the phase before any container is looked at.
func TestWhatIsKnownOfThePhaseStandsAboveTheContainers(t *testing.T) {
	for _, tc := range []struct {
		name         string
		state        func(*State)
		phase        v1.PodPhase
		reason, text string
	}{
		{"a terminal phase that was reported is kept", func(s *State) {
			s.Reported = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "low"}
		}, v1.PodFailed, "Evicted", "low"},
		{"a terminal phase that the apiserver has is kept", func(s *State) { s.Pod.Status.Phase = v1.PodSucceeded }, v1.PodSucceeded, "", ""},
		{"reason and message are kept while the phase is", func(s *State) {
			s.Observed.Containers[0].State, s.Observed.Containers[0].FinishedAt = podstate.StateRunning, time.Time{}
			s.Reported = v1.PodStatus{Phase: v1.PodRunning, Reason: "Why", Message: "so"}
		}, v1.PodRunning, "Why", "so"},
		{"the deadline overrides", func(s *State) {
			limit := int64(5)
			s.Pod.Spec.ActiveDeadlineSeconds = &limit
			s.Observed.Sandboxes[0].PodStarted = start.Add(-time.Minute)
		}, v1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := scene(testPod(v1.RestartPolicyNever, "a"), "a 0")
			tc.state(&s)
			if st := Plan(s).Status; st.Phase != tc.phase || st.Reason != tc.reason || st.Message != tc.text {
				t.Errorf("phase %s, reason %q, message %q", st.Phase, st.Reason, st.Message)
			}
		})
	}
}
