package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const exitForAll = 42

// restartingPod has an init container, a sidecar and two containers; a
// container named on exits all of them restart on exit code 42.
func restartingPod(on string) *v1.Pod {
	pod := withSidecar(withInit(testPod(v1.RestartPolicyNever, "a", "b"), "init"), "side")
	never := v1.ContainerRestartPolicyNever
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name != on {
				continue
			}
			list[i].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{exitForAll}},
			}}
			if list[i].RestartPolicy == nil {
				list[i].RestartPolicy = &never
			}
		}
	}
	return pod
}

func statusOf(st v1.PodStatus, name string) v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, cs := range list {
			if cs.Name == name {
				return cs
			}
		}
	}
	return v1.ContainerStatus{}
}

func reasonFor(st v1.PodStatus, t v1.PodConditionType) string {
	for _, c := range st.Conditions {
		if c.Type == t {
			return c.Reason
		}
	}
	return ""
}

func TestAMatchingExitRestartsAllContainersFromTheBeginning(t *testing.T) {
	for _, on := range []string{"a", "side"} {
		t.Run(on, func(t *testing.T) {
			w := newWorld(restartingPod(on))
			w.exits["init"] = []int32{0, 0}
			w.settle(time.Minute)
			if condition(w.out.Status, v1.AllContainersRestarting) != v1.ConditionFalse {
				t.Fatalf("condition before: %+v", w.out.Status.Conditions)
			}
			w.s.Now = w.s.Now.Add(time.Minute)
			w.end(w.newest(on), exitForAll)
			w.log = nil
			w.step()
			st := w.out.Status
			if condition(st, v1.AllContainersRestarting) != v1.ConditionTrue || reasonFor(st, v1.AllContainersRestarting) != "RestartAllContainersStarted" {
				t.Fatalf("conditions %+v", st.Conditions)
			}
			if condition(st, v1.PodInitialized) != v1.ConditionTrue || st.Phase != v1.PodRunning {
				t.Fatalf("phase %s, conditions %+v", st.Phase, st.Conditions)
			}
			if slices.ContainsFunc(w.log, func(l string) bool { return l[:4] != "kill" }) || len(w.log) != 2 {
				t.Fatalf("before the others have ended: %v", w.log)
			}
			w.settle(time.Minute)
			st = w.out.Status
			if condition(st, v1.AllContainersRestarting) != v1.ConditionFalse || condition(st, v1.PodReady) != v1.ConditionTrue {
				t.Fatalf("conditions afterwards %+v, log %v", st.Conditions, w.log)
			}
			for _, name := range []string{"init", "side", "a", "b"} {
				cs := statusOf(st, name)
				last := cs.LastTerminationState.Terminated
				if cs.RestartCount != 1 || last == nil {
					t.Fatalf("%s: restarts %d, last state %+v", name, cs.RestartCount, last)
				}
				if name == on {
					if last.ExitCode != exitForAll {
						t.Errorf("%s, which caused it: %+v", name, last)
					}
				} else if last.ExitCode != 137 || last.Reason != "RestartingAllContainers" {
					t.Errorf("%s: last state %+v", name, last)
				}
			}
			var starts []string
			for _, l := range w.log {
				if l[:5] == "start" {
					starts = append(starts, l)
				}
			}
			want := []string{"start container init", "start container side", "start container a", "start container b"}
			if !slices.Equal(starts, want) || len(w.s.Observed.Sandboxes) != 1 {
				t.Errorf("starts %v, want %v; sandboxes %v", starts, want, w.s.Observed.Sandboxes)
			}
		})
	}
}

func TestAnInitContainerMayRestartAllContainers(t *testing.T) {
	w := newWorld(restartingPod("init"))
	w.exits["init"] = []int32{exitForAll, 0}
	w.settle(time.Minute)
	if st := w.out.Status; st.Phase != v1.PodRunning || statusOf(st, "init").RestartCount != 1 || statusOf(st, "a").RestartCount != 0 {
		t.Fatalf("status %+v, log %v", st, w.log)
	}
}

func TestTheKillsOfARestartOfAllHaveNoGraceAndNoHook(t *testing.T) {
	w := newWorld(withPreStop(restartingPod("a"), "b", "side"))
	w.exits["init"] = []int32{0, 0}
	w.settle(time.Minute)
	w.end(w.newest("a"), exitForAll)
	for _, a := range Plan(w.s).Actions {
		if a.Kind != podstate.KillContainer || a.GraceSeconds != shortestGrace {
			t.Fatalf("action %+v", a)
		}
	}
}

func TestWaitingContainersSayThatAllAreRestarted(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	w.settle(time.Minute)
	w.end(w.newest("a"), exitForAll)
	w.end(w.newest("b"), 137)
	st := Plan(w.s).Status // the sidecar still lives
	for _, name := range []string{"a", "b", "init"} {
		if cs := statusOf(st, name); cs.State.Waiting == nil || cs.State.Waiting.Reason != "RestartingAllContainers" {
			t.Errorf("%s: %+v", name, cs.State)
		}
	}
	if cs := statusOf(st, "side"); cs.State.Running == nil {
		t.Errorf("side: %+v", cs.State)
	}
}

func TestAStartUnderWayBelongsToTheEarlierRound(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	w.settle(time.Minute)
	// b's start is under way when a's exit is seen; its container turns up later.
	b := *w.newest("b")
	w.drop(b.ID)
	key := podstate.Key{Kind: podstate.StartContainer, Object: "b"}
	w.s.InFlight[key] = podstate.Action{Key: key, Container: "b", SandboxID: b.SandboxID}
	w.end(w.newest("a"), exitForAll)
	w.end(w.newest("side"), 137)
	out := Plan(w.s)
	if slices.Contains(out.Cancel, key) || len(out.Actions) != 0 {
		t.Fatalf("cancel %v, actions %+v; what is started counts as restarted", out.Cancel, out.Actions)
	}
	delete(w.s.InFlight, key)
	b.CreatedAt = w.s.Now.Add(time.Second)
	w.s.Observed.Containers = append([]podstate.Container{b}, w.s.Observed.Containers...)
	if out := Plan(w.s); len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].ID != b.ID {
		t.Fatalf("actions %+v; it has to end before the init container runs", out.Actions)
	}
	w.settle(time.Minute)
	if w.newest("b").Round != 1 || w.newest("b").RestartCount != 1 || w.count("start container init") != 2 {
		t.Fatalf("b %+v, log %v", w.newest("b"), w.log)
	}
}

func TestARestartOfAllGoesOnAfterTheAgentForgotEverything(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	w.settle(time.Minute)
	w.end(w.newest("a"), exitForAll)
	for range 8 {
		w.step()
		w.s.Reported, w.s.Stops = v1.PodStatus{}, map[string]ContainerStop{}
	}
	w.settle(time.Minute)
	for _, name := range []string{"init", "side", "a", "b"} {
		if c := w.newest(name); c.RestartCount != 1 || c.Round != 1 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if w.out.Status.Phase != v1.PodRunning {
		t.Errorf("phase %s", w.out.Status.Phase)
	}
}

func TestWhoeverCausesRestartsOfAllBacksOff(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	w.exits["a"] = []int32{exitForAll, exitForAll, exitForAll, exitForAll}
	w.settle(time.Hour)
	if n := w.count("start container a"); n != 5 {
		t.Fatalf("a started %d times", n)
	}
	if took := w.newest("a").StartedAt.Sub(start); took < 70*time.Second || took > 90*time.Second {
		t.Errorf("four restarts after %v; 0, 10, 20 and 40 s make 70", took)
	}
	if b := w.newest("b"); b.RestartCount != 4 || b.Backoff != 0 {
		t.Errorf("b %+v", b)
	}
}

func TestAllContainersRestartingIsShownOnlyWhereARuleAsksForIt(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		node   func(*Node)
		ends   bool
		want   v1.ConditionStatus
		reason string
	}{
		"no rule":                    {testPod(v1.RestartPolicyAlways, "a"), nil, false, "absent", ""},
		"a rule":                     {restartingPod("a"), nil, false, v1.ConditionFalse, ""},
		"a rule, its gate is off":    {restartingPod("a"), func(n *Node) { n.NoRestartAll = true }, false, "absent", ""},
		"a rule, both gates are off": {restartingPod("a"), func(n *Node) { n.NoRestartRules = true }, false, "absent", ""},
		"a pod that succeeded":       {restartingPod("a"), nil, true, v1.ConditionFalse, "PodCompleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.pod)
			w.exits["init"] = []int32{0}
			if tc.node != nil {
				tc.node(&w.s.Node)
			}
			if tc.ends {
				w.exits["a"], w.exits["b"] = []int32{0}, []int32{0}
			}
			w.settle(time.Minute)
			if got := condition(w.out.Status, v1.AllContainersRestarting); got != tc.want || reasonFor(w.out.Status, v1.AllContainersRestarting) != tc.reason {
				t.Errorf("it is %s, want %s; %+v", got, tc.want, w.out.Status.Conditions)
			}
		})
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
		{"the gate of the action is off", []v1.ContainerRestartRule{rule(all, in, 2), rule(one, in, 2)}, Node{NoRestartAll: true}, 2, one},
		{"the gate of all rules is off", []v1.ContainerRestartRule{rule(one, in, 2)}, Node{NoRestartRules: true}, 2, ""},
		{"an unknown action matches nothing", []v1.ContainerRestartRule{rule("Explode", in, 2)}, Node{}, 2, ""},
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

func TestAChangeOfImageOrResourcesForgetsTheBackoff(t *testing.T) {
	spec := &v1.Container{Name: "a", Image: "img"}
	for name, c := range map[string]struct {
		made podstate.Container
		kept bool
	}{
		"the same":        {podstate.Container{SpecHash: podutil.Hash(spec), BackoffKey: podutil.BackoffKey(spec)}, true},
		"another agent's": {podstate.Container{}, true},
		"another image":   {podstate.Container{SpecHash: "x", BackoffKey: podutil.BackoffKey(spec)}, false},
		"other resources": {podstate.Container{SpecHash: podutil.Hash(spec), BackoffKey: "x"}, false},
	} {
		ended := c.made
		ended.State, ended.ExitCode, ended.FinishedAt, ended.Backoff = podstate.StateExited, 1, start, 40*time.Second
		p := &planner{s: &State{Now: start, Pod: testPod(v1.RestartPolicyAlways)}}
		at, _ := p.restartTime(&view{spec: spec, class: regular, found: found{newest: &ended}})
		if kept := at.Equal(start.Add(40 * time.Second)); kept != c.kept {
			t.Errorf("%s: it starts at %v", name, at)
		}
	}
}

func TestTheFirstBackoffMayBeShorter(t *testing.T) {
	c := &podstate.Container{StartedAt: start, FinishedAt: start.Add(time.Second)}
	for _, tc := range []struct {
		node Node
		want time.Duration
	}{
		{Node{}, 10 * time.Second},
		{Node{FirstContainerRestartPeriod: time.Second, MaxContainerRestartPeriod: time.Minute}, time.Second},
		{Node{MaxContainerRestartPeriod: 3 * time.Second}, 3 * time.Second},
	} {
		if _, next := restartAt(c, tc.node); next != tc.want {
			t.Errorf("%+v: %v, want %v", tc.node, next, tc.want)
		}
	}
}

// Source: test/e2e/common/node/container_restart_policy.go, "should restart all
// containers on regular container exit", whose container exits at once.
func TestWhatHadNotStartedYetWhenAllAreRestartedIsRestartedToo(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	for w.newest("a") == nil {
		w.step()
		w.s.Now = w.s.Now.Add(time.Second)
		w.expire()
	}
	w.end(w.newest("a"), exitForAll) // before b could start
	if w.newest("b") != nil {
		t.Fatal("b runs")
	}
	w.settle(time.Minute)
	for _, name := range []string{"init", "side", "a", "b"} {
		if cs := statusOf(w.out.Status, name); cs.RestartCount != 1 || cs.LastTerminationState.Terminated == nil {
			t.Errorf("%s: %+v", name, cs)
		}
	}
}

func TestARestartOfAllDoesNotWaitForWhatCannotStart(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	w.fail = func(a podstate.Action) *Failure {
		if a.Container == "b" && (a.Kind == podstate.StartContainer || a.Kind == podstate.PullImage) {
			return &Failure{Reason: "CreateContainerError", Message: "no"}
		}
		return nil
	}
	w.settle(time.Minute)
	w.end(w.newest("a"), exitForAll)
	w.settle(time.Minute)
	if c := w.newest("a"); c.RestartCount != 1 || c.Round != 1 || !c.Live() {
		t.Errorf("a: %+v, log %v", c, w.log)
	}
}

// What is first seen of a new round is the start of its first init container, and
// that may take a while.
func TestNothingOfTheEarlierRoundStartsOnceTheNextOneHasBegun(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	w.fail = func(a podstate.Action) *Failure {
		if a.Container == "b" && a.Kind == podstate.PullImage {
			return &Failure{Reason: "ErrImagePull", Message: "no"}
		}
		return nil
	}
	w.settle(time.Minute)
	w.end(w.newest("a"), exitForAll)
	var begun *podstate.Action
	for n := 0; n < 20 && begun == nil; n++ {
		for _, a := range Plan(w.s).Actions {
			if a.Kind == podstate.StartContainer && a.Container == "init" && a.Round == 1 {
				begun = &a
			}
		}
		if begun == nil {
			w.step()
		}
	}
	if begun == nil {
		t.Fatalf("the next round does not begin: log %v", w.log)
	}
	w.s.InFlight[begun.Key] = *begun
	delete(w.s.Failures, podstate.Key{Kind: podstate.PullImage, Object: "b"})
	w.s.Images["b"] = Image{Spec: "img", Ref: "sha256:1"}
	for _, a := range Plan(w.s).Actions {
		if a.Kind == podstate.StartContainer {
			t.Errorf("container %s is started in round %d", a.Container, a.Round)
		}
	}
}

// A pod that is deleted: one container's exit on SIGTERM matches its rule. Nothing is
// restarted any more, and what the others exited with is what is to be told.
func TestAPodThatEndsTellsHowItsContainersEnded(t *testing.T) {
	pod := testPod(v1.RestartPolicyNever, "a", "b")
	pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}},
	}}
	never := v1.ContainerRestartPolicyNever
	pod.Spec.Containers[1].RestartPolicy = &never
	w := newWorld(pod)
	w.killCode = 143
	w.settle(time.Minute)
	deleted := pod.DeepCopy()
	at, grace := metav1.NewTime(w.s.Now.Add(30*time.Second)), int64(30)
	deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &at, &grace
	w.s.Pod = deleted
	w.settle(time.Minute)
	for _, cs := range w.out.Status.ContainerStatuses {
		if s := cs.State.Terminated; s == nil || s.ExitCode != 143 {
			t.Errorf("container %s: %+v, want that it exited with 143", cs.Name, cs.State)
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

// A critical pod takes the place of one whose containers all end well; it has succeeded.
func TestAPreemptedPodWhoseContainersEndWellHasSucceeded(t *testing.T) {
	pod := restartingPod("side")
	w := newWorld(pod)
	w.exits["init"] = []int32{0, 0}
	w.settle(time.Minute)
	w.s.Stop = &podstate.Stop{Reason: "Preempting", ByContainers: true}
	for i := range w.s.Observed.Containers {
		if c := &w.s.Observed.Containers[i]; c.State == podstate.StateRunning {
			code := int32(0)
			if c.Name == "side" {
				code = exitForAll
			}
			w.s.Stops[c.ID] = asked(w.s.Now, podstate.CauseEnd, 30)
			w.end(c, code)
		}
	}
	w.s.EndSince = w.s.Now
	w.settle(time.Minute)
	if got := w.out.Status.Phase; got != v1.PodSucceeded {
		t.Errorf("phase %s, want Succeeded: all regular containers exited with 0", got)
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

// Who cleans dead containers away by hand takes the init container, and what has done
// its work, out of what the runtime knows; the status still has them.
func TestWhatTheRuntimeHasLostIsRestartedWithAllOthers(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"], w.exits["b"] = []int32{0}, []int32{0}
	w.settle(time.Minute)
	w.drop(w.newest("init").ID)
	w.drop(w.newest("b").ID)
	w.log = nil
	w.settle(time.Minute)
	if len(w.log) != 0 {
		t.Fatalf("what has done its work is lost, and that alone did %v", w.log)
	}
	w.exits["init"] = []int32{0}
	w.end(w.newest("a"), exitForAll)
	w.settle(time.Minute)
	var starts []string
	for _, l := range w.log {
		if l[:5] == "start" {
			starts = append(starts, l)
		}
	}
	if want := []string{"start container init", "start container side", "start container a", "start container b"}; !slices.Equal(starts, want) {
		t.Fatalf("starts %v, want %v", starts, want)
	}
	w.drop(w.newest("init").ID)
	w.log = nil
	w.settle(time.Minute)
	if len(w.log) != 0 || statusOf(w.out.Status, "init").RestartCount != 1 {
		t.Errorf("of the new round: did %v, status %+v", w.log, statusOf(w.out.Status, "init"))
	}
}

// The image of what could not start may come while the others are being killed.
func TestARestartOfAllThatKillsIsNotTakenBackForAFirstStart(t *testing.T) {
	w := newWorld(restartingPod("a"))
	w.exits["init"] = []int32{0, 0}
	away := true
	w.fail = func(a podstate.Action) *Failure {
		if away && a.Container == "b" && a.Kind == podstate.PullImage {
			return &Failure{Reason: "ErrImagePull", Message: "no"}
		}
		return nil
	}
	w.settle(time.Minute)
	w.end(w.newest("a"), exitForAll)
	w.step()
	if w.newest("side").Live() || w.newest("b") != nil {
		t.Fatalf("log %v", w.log)
	}
	away = false
	w.do(podstate.Action{Key: podstate.Key{Kind: podstate.PullImage, Object: "b"}, Container: "b"})
	w.log = nil
	w.settle(time.Minute)
	if i := slices.Index(w.log, "start container b"); i < slices.Index(w.log, "start container side") || w.count("start container b") != 1 {
		t.Errorf("log %v", w.log)
	}
}
