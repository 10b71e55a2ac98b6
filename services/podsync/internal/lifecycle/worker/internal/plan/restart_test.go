package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestRestartPolicyDecidesWhichExitsStartAgain(t *testing.T) {
	always, onFailure, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever
	rule := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
	for _, tc := range []struct {
		name  string
		pod   v1.RestartPolicy
		own   *v1.ContainerRestartPolicy
		rules []v1.ContainerRestartRule
		class class
		exit  int32
		want  bool
	}{
		{"always restarts success", v1.RestartPolicyAlways, nil, nil, regular, 0, true},
		{"always restarts failure", v1.RestartPolicyAlways, nil, nil, regular, 1, true},
		{"on failure leaves success", v1.RestartPolicyOnFailure, nil, nil, regular, 0, false},
		{"on failure restarts failure", v1.RestartPolicyOnFailure, nil, nil, regular, 1, true},
		{"never leaves failure", v1.RestartPolicyNever, nil, nil, regular, 1, false},
		{"the container's policy wins over the pod's", v1.RestartPolicyNever, &onFailure, nil, regular, 1, true},
		{"the container's never wins", v1.RestartPolicyAlways, &never, nil, regular, 1, false},
		{"the container's always", v1.RestartPolicyNever, &always, nil, regular, 0, true},
		{"a rule wins over both", v1.RestartPolicyNever, &never, rule, regular, 42, true},
		{"a rule that does not match", v1.RestartPolicyNever, &never, rule, regular, 41, false},
		{"a finished init container stays finished", v1.RestartPolicyAlways, nil, nil, ordinaryInit, 0, false},
		{"a failed init container tries again", v1.RestartPolicyAlways, nil, nil, ordinaryInit, 1, true},
		{"a failed init container of a pod that never restarts", v1.RestartPolicyNever, nil, nil, ordinaryInit, 1, false},
		{"a sidecar always", v1.RestartPolicyNever, nil, nil, sidecar, 0, true},
		{"a debug container never", v1.RestartPolicyAlways, nil, nil, ephemeral, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &view{spec: &v1.Container{Name: "a", RestartPolicy: tc.own, RestartPolicyRules: tc.rules}, class: tc.class}
			p := &planner{s: &State{Pod: testPod(tc.pod)}}
			if got := p.restarts(v, &podstate.Container{State: podstate.StateExited, ExitCode: tc.exit}); got != tc.want {
				t.Fatalf("restarts = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCrashLoopBackoffDoublesUpToFiveMinutes(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.exits["a"] = []int32{1, 1, 1, 1, 1, 1, 1, 1}
	var starts []time.Time
	for len(starts) < 9 {
		before := w.count("start container a")
		w.step()
		if w.count("start container a") > before {
			starts = append(starts, w.s.Now)
			continue
		}
		if w.s.Now.Sub(start) > 2*time.Hour {
			t.Fatalf("only %d starts, log %v", len(starts), w.log)
		}
		w.s.Now = w.s.Now.Add(500 * time.Millisecond)
		w.expire()
	}
	for i, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
		// A start runs for a second before it ends; the clock moves in halves.
		got := starts[i+1].Sub(starts[i]) - time.Second
		if got < want*time.Second || got > want*time.Second+time.Second {
			t.Errorf("restart %d waited %v, want %v", i+1, got, want*time.Second)
		}
	}
	if n := w.newest("a").RestartCount; n != 8 {
		t.Errorf("restart count %d, want 8", n)
	}
}

func TestALongRunForgetsTheBackoff(t *testing.T) {
	c := &podstate.Container{StartedAt: start, FinishedAt: start.Add(11 * time.Minute), Backoff: 160 * time.Second}
	at, next := restartAt(c, Node{})
	if !at.Equal(c.FinishedAt) || next != 10*time.Second {
		t.Fatalf("restart at %v with %v", at, next)
	}
}

func TestAContainerThatCouldNotStartKeepsItsBackoff(t *testing.T) {
	c := &podstate.Container{State: podstate.StateExited, ExitCode: 128, Reason: "StartError", FinishedAt: start, Backoff: 40 * time.Second}
	at, next := restartAt(c, Node{})
	if !at.Equal(start.Add(40*time.Second)) || next != 80*time.Second {
		t.Fatalf("it starts %v after its end and then waits %v, want 40s and 80s", at.Sub(start), next)
	}
}

func TestAClockThatIsSetBackHoldsNoRestartUp(t *testing.T) {
	for name, code := range map[string]int32{"it crashed": 1, "it was killed from outside": 137} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.exits["a"] = []int32{code, code}
		w.settle(5 * time.Second) // it waits for its second restart
		w.s.Now = w.s.Now.Add(-time.Hour)
		w.settle(10 * time.Second)
		c := w.newest("a")
		if c.State != podstate.StateRunning || c.RestartCount != 2 || c.Backoff != 20*time.Second {
			t.Errorf("%s: an hour back in time it is %+v", name, c)
		}
	}
}

func TestTheNodeMayCapTheBackoff(t *testing.T) {
	c := &podstate.Container{StartedAt: start, FinishedAt: start.Add(time.Second), Backoff: 160 * time.Second}
	at, next := restartAt(c, Node{MaxContainerRestartPeriod: 20 * time.Second})
	if at.Sub(c.FinishedAt) != 20*time.Second || next != 20*time.Second {
		t.Fatalf("restart after %v with %v", at.Sub(c.FinishedAt), next)
	}
}

func TestACrashedContainerShowsItsBackoffAndLastState(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.exits["a"] = []int32{1, 1}
	w.settle(5 * time.Second)
	cs := w.out.Status.ContainerStatuses[0]
	if cs.State.Waiting == nil || cs.State.Waiting.Reason != "CrashLoopBackOff" || cs.State.Waiting.Message != "back-off 10s restarting failed container=a pod=p_default(u1)" {
		t.Fatalf("state %+v", cs.State)
	}
	if l := cs.LastTerminationState.Terminated; l == nil || l.ExitCode != 1 || cs.RestartCount != 1 {
		t.Fatalf("last state %+v, restarts %d", cs.LastTerminationState, cs.RestartCount)
	}
	if w.out.Status.Phase != v1.PodRunning {
		t.Fatalf("phase %s", w.out.Status.Phase)
	}
}

func TestAFailedProbeKillsOnlyItsOwnContainer(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a", "b")
	short := int64(7)
	pod.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &short}
	w := newWorld(pod)
	w.settle(time.Minute)
	w.s.Probes[podstate.ProbeKey{Container: "a", Type: podstate.Liveness}] = podstate.ProbeResult{ContainerID: "of another start"}
	if out := Plan(w.s); len(out.Actions) != 0 {
		t.Fatalf("a result for another container acts: %+v", out.Actions)
	}
	w.s.Probes[podstate.ProbeKey{Container: "a", Type: podstate.Liveness}] = podstate.ProbeResult{ContainerID: w.newest("a").ID}
	out := Plan(w.s)
	if len(out.Actions) != 1 || out.Actions[0].Reason != "Container a failed liveness probe, will be restarted" || out.Actions[0].GraceSeconds != 7 {
		t.Fatalf("actions %+v", out.Actions)
	}
	w.settle(time.Minute)
	if w.newest("a").RestartCount != 1 || w.newest("b").RestartCount != 0 {
		t.Fatalf("restarts %d and %d", w.newest("a").RestartCount, w.newest("b").RestartCount)
	}
}

func TestReadinessHoldsOverARestartOfTheAgent(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	w := newWorld(pod)
	w.settle(time.Minute)
	if condition(w.out.Status, v1.PodReady) != v1.ConditionFalse {
		t.Fatal("ready before its probe said so")
	}
	w.s.Probes[podstate.ProbeKey{Container: "a", Type: podstate.Readiness}] = podstate.ProbeResult{ContainerID: w.newest("a").ID, Success: true}
	w.step()
	w.s.Probes = nil // the agent has restarted: no result, the reported status remains
	if out := Plan(w.s); condition(out.Status, v1.PodReady) != v1.ConditionTrue || len(out.Actions) != 0 {
		t.Fatalf("ready %s, actions %v", condition(out.Status, v1.PodReady), out.Actions)
	}
	w.s.Observed.Containers[0].ID = "another"
	if out := Plan(w.s); condition(out.Status, v1.PodReady) != v1.ConditionFalse {
		t.Fatal("another container inherits readiness")
	}
}

func TestALostContainerCountsAsARestart(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Observed.Containers = nil
	w.settle(time.Minute)
	cs := w.out.Status.ContainerStatuses[0]
	if cs.RestartCount != 1 || cs.State.Running == nil || cs.LastTerminationState.Terminated == nil || cs.LastTerminationState.Terminated.Reason != "ContainerStatusUnknown" {
		t.Fatalf("status %+v", cs)
	}
}

func TestAFailedPullShowsItsErrorAndThenBacksOff(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage {
			return &Failure{Reason: "ErrImagePull", Message: "not found"}
		}
		return nil
	}
	for w.count("pull image a") == 0 {
		w.step()
	}
	w.step()
	if r := w.out.Status.ContainerStatuses[0].State.Waiting; r.Reason != "ErrImagePull" {
		t.Fatalf("state %+v", r)
	}
	w.settle(5 * time.Second)
	if r := w.out.Status.ContainerStatuses[0].State.Waiting; r.Reason != "ImagePullBackOff" || r.Message != `Back-off pulling image "img": ErrImagePull: not found` {
		t.Fatalf("state %+v", r)
	}
	w.settle(time.Hour)
	if n := w.count("pull image a"); n < 14 || n > 17 {
		t.Fatalf("%d pulls in an hour; 10, 20, 40 … 300 s make about 15", n)
	}
}

func TestAStartThatCameToNothingKeepsTheBackoff(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	ended := *w.newest("a")
	ended.State, ended.ExitCode, ended.FinishedAt, ended.Backoff = podstate.StateExited, 1, w.s.Now, 20*time.Second
	made := ended
	made.ID, made.State, made.RestartCount, made.Backoff = "made", podstate.StateCreated, ended.RestartCount+1, 40*time.Second
	w.s.Observed.Containers = []podstate.Container{made, ended}
	w.s.Now = w.s.Now.Add(20 * time.Second)
	w.s.Images["a"] = Image{Spec: "img", Ref: "sha256:1", RestartCount: made.RestartCount}
	for _, a := range Plan(w.s).Actions {
		if a.Kind == podstate.StartContainer {
			if a.Attempt != made.RestartCount || a.Backoff != 40*time.Second {
				t.Fatalf("it starts with attempt %d and back-off %v, want %d and 40s", a.Attempt, a.Backoff, made.RestartCount)
			}
			return
		}
	}
	t.Fatal("it does not start")
}

// What a back-off was earned with may be known to the apiserver alone: the
// runtime was wiped, or the sandbox went with all its containers.
func TestAStartThatCameToNothingKeepsTheBackoffOfAContainerThatIsLost(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	made := *w.newest("a")
	made.ID, made.State, made.StartedAt, made.RestartCount, made.Backoff = "made", podstate.StateCreated, time.Time{}, 3, 40*time.Second
	w.s.Observed.Containers = []podstate.Container{made}
	w.s.Images["a"] = Image{Spec: "img", Ref: "sha256:1", RestartCount: made.RestartCount}
	again := func() podstate.Action {
		t.Helper()
		for _, a := range Plan(w.s).Actions {
			if a.Kind == podstate.StartContainer {
				return a
			}
		}
		t.Fatal("it does not start")
		return podstate.Action{}
	}
	if a := again(); a.Attempt != 3 || a.Backoff != 40*time.Second {
		t.Errorf("it starts with attempt %d and back-off %v, want 3 and 40s", a.Attempt, a.Backoff)
	}
	w.s.Observed.Containers[0].BackoffKey = "earned with another image"
	if a := again(); a.Backoff != 0 {
		t.Errorf("another image starts with a back-off of %v", a.Backoff)
	}
}

func TestARuntimeThatIsAwayIsNoFailureOfTheImage(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	away := 3
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage && away > 0 {
			away--
			return &Failure{Reason: "ImageInspectError", Message: "connection error", Away: true}
		}
		return nil
	}
	w.step()
	w.step()
	if r := w.out.Status.ContainerStatuses[0].State.Waiting; r == nil || r.Reason != "ContainerCreating" {
		t.Fatalf("state %+v", r)
	}
	if waits := w.out.Waits; len(waits) == 0 || waits[0].Kind != "runtime" {
		t.Fatalf("waits %+v", waits)
	}
	w.settle(time.Minute)
	if c := w.newest("a"); c == nil || c.StartedAt.Sub(start) > 3*time.Second {
		t.Fatalf("started %+v, log %v", c, w.log)
	}
}

func TestRulesAreReadInOrderAndTheirGatesCount(t *testing.T) {
	rule := func(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	one, all := v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	for _, tc := range []struct {
		name  string
		rules []v1.ContainerRestartRule
		node  Node
		exit  int32
		want  v1.ContainerRestartRuleAction
	}{
		{"the first that matches decides", []v1.ContainerRestartRule{rule(one, in, 1, 2), rule(all, in, 2)}, Node{}, 2, one},
		{"a later one", []v1.ContainerRestartRule{rule(one, in, 1), rule(all, in, 2)}, Node{}, 2, all},
		{"none", []v1.ContainerRestartRule{rule(one, in, 1), rule(all, in, 2)}, Node{}, 3, ""},
		{"not in", []v1.ContainerRestartRule{rule(all, notIn, 0)}, Node{}, 3, all},
		{"not in, but it is", []v1.ContainerRestartRule{rule(all, notIn, 0)}, Node{}, 0, ""},
		{"success may restart too", []v1.ContainerRestartRule{rule(one, in, 0)}, Node{}, 0, one},
		{"no exit codes match nothing", []v1.ContainerRestartRule{{Action: one}}, Node{}, 0, ""},
		{"the gate of the action is off", []v1.ContainerRestartRule{rule(all, in, 2), rule(one, in, 2)}, Node{NoRestartAll: true}, 2, ""},
		{"its gate is off, and it does not match", []v1.ContainerRestartRule{rule(all, in, 1), rule(one, in, 2)}, Node{NoRestartAll: true}, 2, one},
		{"the gate of all rules is off", []v1.ContainerRestartRule{rule(one, in, 2)}, Node{NoRestartRules: true}, 2, ""},
		{"an unknown action does nothing", []v1.ContainerRestartRule{rule("Explode", in, 2), rule(one, in, 2)}, Node{}, 2, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &planner{s: &State{Pod: testPod(v1.RestartPolicyNever), Node: tc.node}}
			v := &view{spec: &v1.Container{Name: "a", RestartPolicyRules: tc.rules}, class: regular}
			c := &podstate.Container{State: podstate.StateExited, ExitCode: tc.exit}
			if got := p.rule(v, c); got != tc.want || p.restarts(v, c) != (tc.want != "") {
				t.Errorf("rule %q, restarts %v, want %q", got, p.restarts(v, c), tc.want)
			}
		})
	}
}

func TestTheContainersOwnPolicyNeedsItsGate(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	v := &view{spec: &v1.Container{Name: "a", RestartPolicy: &always}, class: regular}
	for _, off := range []bool{false, true} {
		p := &planner{s: &State{Pod: testPod(v1.RestartPolicyNever), Node: Node{NoRestartRules: off}}}
		if got := p.restarts(v, &podstate.Container{State: podstate.StateExited}); got == off {
			t.Errorf("gate off %v: restarts %v", off, got)
		}
	}
}

// podsync was away as the work ended, and so stopped no sidecar: what those exited with
// later on, or were exiting with meanwhile, does not run the work again.
func TestWorkThatEndedWhileNobodyLookedIsNotRunAgainForItsSidecar(t *testing.T) {
	const after, before = time.Second, -time.Second
	for _, c := range []struct {
		name     string
		policy   v1.RestartPolicy
		rule     bool
		code     int32 // of the work
		exit     int32 // of the sidecar; negative: it runs
		sidecar  time.Duration
		told     bool
		runAgain bool
		phase    v1.PodPhase
	}{
		{"done, the sidecar runs", v1.RestartPolicyNever, true, 0, -1, 0, false, false, v1.PodSucceeded},
		{"done, then the sidecar asks", v1.RestartPolicyNever, true, 0, exitForAll, after, false, false, v1.PodSucceeded},
		{"done, then the sidecar asks, on failure", v1.RestartPolicyOnFailure, true, 0, exitForAll, after, false, false, v1.PodSucceeded},
		{"done, the sidecar has no rule", v1.RestartPolicyOnFailure, false, 0, exitForAll, after, false, false, v1.PodSucceeded},
		{"failed, then the sidecar asks", v1.RestartPolicyNever, true, 1, exitForAll, after, false, false, v1.PodFailed},
		{"failed, the sidecar has no rule", v1.RestartPolicyNever, false, 1, exitForAll, after, false, false, v1.PodFailed},
		{"the sidecar asked, then it was done", v1.RestartPolicyNever, true, 0, exitForAll, before, false, false, v1.PodSucceeded},
		{"the sidecar asked, and the rest was being killed", v1.RestartPolicyNever, true, 137, exitForAll, before, false, true, v1.PodRunning},
		{"the restart of all was told", v1.RestartPolicyNever, true, 0, exitForAll, before, true, true, v1.PodRunning},
		{"the work is tried again, and the sidecar asks", v1.RestartPolicyOnFailure, true, 1, exitForAll, after, false, true, v1.PodRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := restartingPod("side")
			pod.Spec.RestartPolicy = c.policy
			if !c.rule {
				pod = withSidecar(withInit(testPod(c.policy, "a", "b"), "init"), "side")
			}
			w := newWorld(pod)
			w.exits["init"] = []int32{0, 0}
			w.settle(time.Minute)
			w.s.Now = w.s.Now.Add(time.Minute)
			for _, name := range []string{"a", "b"} {
				w.end(w.newest(name), c.code)
			}
			if side := w.newest("side"); c.exit >= 0 {
				w.end(side, c.exit)
				side.FinishedAt = w.s.Now.Add(c.sidecar)
			}
			if c.told {
				podutil.Condition(w.s.Reported.Conditions, v1.AllContainersRestarting).Status = v1.ConditionTrue
			}
			w.s.Now = w.s.Now.Add(time.Minute)
			w.log = nil
			w.settle(10 * time.Minute)
			if again := w.count("start container a") > 0; again != c.runAgain || w.out.Status.Phase != c.phase {
				t.Errorf("phase %s, %v", w.out.Status.Phase, w.log)
			}
		})
	}
}
