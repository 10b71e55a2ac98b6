package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
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
