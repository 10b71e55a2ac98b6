package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Here is what conditions of the planner rest on that no story of a whole pod shows.

func TestTheAPITakesAnEndBackOnlyWhereAPolicyOrARuleStartsTheContainerAgain(t *testing.T) {
	never, onFailure := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	rule := func(action v1.ContainerRestartRuleAction) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
	}
	for _, tc := range []struct {
		name   string
		policy v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		class  class
		code   int32
		want   bool
	}{
		{"Always", v1.RestartPolicyAlways, nil, nil, regular, 0, true},
		{"OnFailure, and it failed", v1.RestartPolicyOnFailure, nil, nil, regular, 1, true},
		{"OnFailure, and it went well", v1.RestartPolicyOnFailure, nil, nil, regular, 0, false},
		{"Never", v1.RestartPolicyNever, nil, nil, regular, 1, false},
		{"its own OnFailure", v1.RestartPolicyNever, &onFailure, nil, regular, 1, true},
		{"its own Never", v1.RestartPolicyAlways, &never, nil, regular, 1, false},
		{"a rule for this exit", v1.RestartPolicyNever, &never, rule(v1.ContainerRestartRuleActionRestart), regular, 42, true},
		{"a rule for another exit", v1.RestartPolicyNever, &never, rule(v1.ContainerRestartRuleActionRestart), regular, 41, false},
		{"a rule that restarts all", v1.RestartPolicyNever, &never, rule(v1.ContainerRestartRuleActionRestartAllContainers), regular, 0, true},
		{"a debug container", v1.RestartPolicyAlways, nil, nil, ephemeral, 1, false},
	} {
		pod := testPod(tc.policy, "a")
		c := &pod.Spec.Containers[0]
		c.RestartPolicy, c.RestartPolicyRules = tc.own, tc.rules
		p := &planner{}
		p.look(&State{Pod: pod, Now: start})
		if got := p.mayLeave(&view{spec: c, class: tc.class}, tc.code); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestAStopThatIsAskedForAnewHasTheShorterOfItsPeriods(t *testing.T) {
	at := func(seconds int64) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, tc := range []struct {
		name   string
		again  int64 // the period that is asked for 10 s after one of 30
		until  int64
		period int64
	}{
		{"less", 5, 15, 5},
		{"what is left", 20, 30, 20},
		{"more than what is left", 25, 30, 25},
		{"more", 60, 30, 30},
	} {
		stop := asked(start, podstate.CauseProbe, 30).Ask(podstate.Action{Cause: podstate.CauseEnd, GraceTotalSeconds: tc.again}, at(10))
		if stop.Began != start || stop.Cause != podstate.CauseEnd || stop.GraceSeconds != tc.period || !stop.Until.Equal(at(tc.until)) {
			t.Errorf("%s: %+v", tc.name, stop)
		}
	}
}

func TestADeletionCountsAnewOnlyWhenItGivesLess(t *testing.T) {
	deleted := func(seconds *int64) *v1.Pod {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: start}, seconds
		return pod
	}
	five, thirty := int64(5), int64(30)
	later := start.Add(10 * time.Second)
	for _, tc := range []struct {
		name     string
		old, now *v1.Pod
		since    time.Time
		before   int
	}{
		{"less", deleted(&thirty), deleted(&five), later, 1},
		{"as much", deleted(&thirty), deleted(&thirty), start, 0},
		{"more", deleted(&five), deleted(&thirty), start, 0},
		{"nothing is known of the period before", deleted(nil), deleted(&five), start, 0},
		{"nothing is known of the period now", deleted(&thirty), deleted(nil), start, 0},
		{"the object before was not deleted", testPod(v1.RestartPolicyAlways, "a"), deleted(&five), start, 0},
		{"nothing is known of the object before", nil, deleted(&five), start, 0},
		{"it is not deleted", deleted(&thirty), testPod(v1.RestartPolicyAlways, "a"), start, 0},
		{"it is gone", deleted(&thirty), nil, start, 0},
	} {
		s := State{Pod: tc.now, DeletionSince: start}
		s.DeletedAnew(tc.old, later)
		if s.DeletionSince != tc.since || len(s.Shortened) != tc.before {
			t.Errorf("%s: since %v, before that %v", tc.name, s.DeletionSince.Sub(start), s.Shortened)
		}
	}
	s := State{Pod: testPod(v1.RestartPolicyAlways, "a")}
	if s.DeletedAnew(nil, later); !s.DeletionSince.IsZero() {
		t.Errorf("a pod that is not deleted was deleted at %v", s.DeletionSince)
	}
	s.Pod = deleted(&five)
	if s.DeletedAnew(nil, later); s.DeletionSince != later {
		t.Errorf("a pod whose deletion is seen for the first time was deleted at %v", s.DeletionSince)
	}
}

// A runtime that calls a sandbox stopped may still run what is in it: what comes in the
// next would run beside it.
func TestNoSandboxIsMadeWhileAContainerOfTheOldOneRuns(t *testing.T) {
	for state, made := range map[podstate.ContainerState]int{podstate.StateRunning: 0, podstate.StateExited: 1} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.settle(time.Minute)
		sb := &w.s.Observed.Sandboxes[0]
		sb.Ready, w.s.StoppedSandboxes[sb.ID] = false, true
		w.newest("a").State = state
		n := 0
		for _, a := range Plan(w.s).Actions {
			if a.Kind == podstate.MakeSandbox {
				n++
			}
		}
		if n != made {
			t.Errorf("a container that is %v: %d sandboxes are made", state, n)
		}
	}
}

func TestAnOldSandboxIsStoppedThoughAContainerStartsInTheNewOne(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	c := w.newest("a")
	w.drop(c.ID)
	w.s.Observed.Sandboxes = append(w.s.Observed.Sandboxes, podstate.Sandbox{ID: "old", CreatedAt: start, IPs: []string{"10.88.0.9"}})
	begins := podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "a"}, Container: "a", SandboxID: c.SandboxID}
	w.s.InFlight[begins.Key] = begins
	out := Plan(w.s)
	if len(out.Actions) == 0 || out.Actions[0].Kind != podstate.StopSandbox || out.Actions[0].ID != "old" {
		t.Errorf("%+v", out.Actions)
	}
}
