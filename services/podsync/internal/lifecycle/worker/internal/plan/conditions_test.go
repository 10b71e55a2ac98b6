package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Each case is a status of a condition, with its reason and message.
func TestTheConditionsSayWhatIsMissing(t *testing.T) {
	gated := func(status v1.ConditionStatus) *v1.Pod {
		p := testPod(v1.RestartPolicyAlways, "a")
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "x"}}
		if status != "" {
			p.Status.Conditions = []v1.PodCondition{{Type: "x", Status: status}}
		}
		return p
	}
	inits := func() *v1.Pod { return withSidecar(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"), "s") }
	debugged := testPod(v1.RestartPolicyAlways, "a")
	debugged.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d", Image: "img"}}}
	for _, tc := range []struct {
		row     string
		state   State
		kind    v1.PodConditionType
		status  v1.ConditionStatus
		reason  string
		message string
	}{
		{"PodReadyToStartContainers: a sandbox is ready", scene(testPod(v1.RestartPolicyAlways, "a")), v1.PodReadyToStartContainers, v1.ConditionTrue, "", ""},
		{"PodReadyToStartContainers: none is", newWorld(testPod(v1.RestartPolicyAlways, "a")).s, v1.PodReadyToStartContainers, v1.ConditionFalse, "", ""},
		{"Initialized: without init containers", scene(testPod(v1.RestartPolicyAlways, "a")), v1.PodInitialized, v1.ConditionTrue, "", ""},
		{"Initialized: some are missing", scene(inits(), "i running"), v1.PodInitialized, v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [i s]"},
		{"Initialized: the sidecar is missing", scene(inits(), "i 0"), v1.PodInitialized, v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [s]"},
		{"Initialized: all is done", scene(inits(), "i 0", "s running"), v1.PodInitialized, v1.ConditionTrue, "", ""},
		{"Initialized: a regular container started", scene(inits(), "a running"), v1.PodInitialized, v1.ConditionTrue, "", ""},
		{"Initialized: the pod succeeded", scene(withInit(testPod(v1.RestartPolicyNever, "a"), "i"), "i 0", "a 0"), v1.PodInitialized, v1.ConditionTrue, "PodCompleted", ""},
		{"ContainersReady: all are", scene(testPod(v1.RestartPolicyAlways, "a", "b"), "a running", "b running"), v1.ContainersReady, v1.ConditionTrue, "", ""},
		{"ContainersReady: one is not", scene(testPod(v1.RestartPolicyAlways, "a", "b"), "a running"), v1.ContainersReady, v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [b]"},
		{"ContainersReady: sidecars count", scene(inits(), "i 0", "s unready", "a running"), v1.ContainersReady, v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [s]"},
		{"ContainersReady: debug containers do not", scene(debugged, "d 3", "a running"), v1.ContainersReady, v1.ConditionTrue, "", ""},
		{"ContainersReady: the pod succeeded", scene(testPod(v1.RestartPolicyNever, "a"), "a 0"), v1.ContainersReady, v1.ConditionFalse, "PodCompleted", ""},
		{"ContainersReady: the pod failed", scene(testPod(v1.RestartPolicyNever, "a"), "a 1"), v1.ContainersReady, v1.ConditionFalse, "PodFailed", ""},
		{"Ready: as the containers", scene(testPod(v1.RestartPolicyAlways, "a"), "a running"), v1.PodReady, v1.ConditionTrue, "", ""},
		{"Ready: the containers' reason", scene(testPod(v1.RestartPolicyAlways, "a")), v1.PodReady, v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [a]"},
		{"Ready: the containers' reason comes before a gate's", scene(gated("")), v1.PodReady, v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [a]"},
		{"Ready: a gate is missing", scene(gated(""), "a running"), v1.PodReady, v1.ConditionFalse, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "x" does not exist.`},
		{"Ready: a gate is not met", scene(gated(v1.ConditionFalse), "a running"), v1.PodReady, v1.ConditionFalse, "ReadinessGatesNotReady", `the status of pod readiness gate "x" is not "True", but False`},
		{"Ready: the gate is met", scene(gated(v1.ConditionTrue), "a running"), v1.PodReady, v1.ConditionTrue, "", ""},
		{"PodScheduled: always", newWorld(testPod(v1.RestartPolicyAlways, "a")).s, v1.PodScheduled, v1.ConditionTrue, "", ""},
		{"another's condition is kept", scene(gated(v1.ConditionFalse), "a running"), "x", v1.ConditionFalse, "", ""},
	} {
		t.Run(tc.row, func(t *testing.T) {
			tc.state.Pod.Generation = 7
			out := Plan(tc.state)
			for _, c := range out.Status.Conditions {
				if c.Type != tc.kind {
					continue
				}
				if c.Status != tc.status || c.Reason != tc.reason || c.Message != tc.message || owned[c.Type] && c.ObservedGeneration != 7 {
					t.Errorf("%+v", c)
				}
				return
			}
			t.Errorf("absent; there are %+v", out.Status.Conditions)
		})
	}
}

// A sidecar that crashes before a regular container was made does not undo what was said of
// the init containers; a new sandbox does, in which they run again.
func TestAPodStaysInitializedThoughASidecarHasEnded(t *testing.T) {
	pod := func() *v1.Pod { return withSidecar(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"), "s") }
	for _, tc := range []struct {
		name string
		said time.Duration // when it was said, by the sandbox's creation
		node Node
		want v1.ConditionStatus
	}{
		{"said in this sandbox", 2 * time.Second, Node{}, v1.ConditionTrue},
		{"said just before this one was made", 0, Node{}, v1.ConditionFalse},
		{"said in the sandbox before", -time.Minute, Node{}, v1.ConditionFalse},
		{"the gate of restarting all is off", 2 * time.Second, Node{NoRestartAll: true}, v1.ConditionFalse},
	} {
		s := scene(pod(), "i 0", "s 1")
		s.Node = tc.node
		s.Now = start.Add(time.Minute)
		s.Observed.Sandboxes[0].CreatedAt = start.Add(700 * time.Millisecond)
		s.Reported = v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{
			Type: v1.PodInitialized, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(tc.said)),
		}}}
		if got := condition(Plan(s).Status, v1.PodInitialized); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAConditionKeepsItsTimeWhileItsStatusIsTheSame(t *testing.T) {
	s := scene(testPod(v1.RestartPolicyAlways, "a"), "a running")
	s.Now = start.Add(time.Hour)
	early := metav1.NewTime(start)
	s.Reported.Conditions = []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: early},
		{Type: v1.ContainersReady, Status: v1.ConditionFalse, LastTransitionTime: early},
	}
	st := Plan(s).Status
	for kind, want := range map[v1.PodConditionType]time.Time{v1.PodReady: start, v1.ContainersReady: s.Now, v1.PodScheduled: s.Now} {
		if got := conditionOf(st, kind); got.Status != v1.ConditionTrue || !got.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s: %+v, want it since %v", kind, got, want)
		}
	}
}

func TestWhyTheNodeEndsAPodIsAConditionOnceThePodHasEnded(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.TakeStop(podstate.Stop{Reason: "Evicted", Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}, true, w.s.Now)
	if st := Plan(w.s).Status; condition(st, v1.DisruptionTarget) != "absent" || condition(st, v1.PodReadyToStartContainers) != v1.ConditionTrue {
		t.Errorf("while it runs: %+v", st.Conditions)
	}
	w.end(w.newest("a"), 0)
	if st := Plan(w.s).Status; condition(st, v1.DisruptionTarget) != v1.ConditionTrue || condition(st, v1.PodReadyToStartContainers) != v1.ConditionFalse {
		t.Errorf("when it has ended, and its sandbox is there: %+v", st.Conditions)
	}
}

func TestARejectedPodIsScheduledAndNothingElse(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Admission = podstate.Admission{Decision: podstate.Rejected, Reason: "OutOfcpu"}
	if st := Plan(w.s).Status; len(st.Conditions) != 1 || st.Conditions[0].Type != v1.PodScheduled {
		t.Errorf("%+v", st.Conditions)
	}
}
