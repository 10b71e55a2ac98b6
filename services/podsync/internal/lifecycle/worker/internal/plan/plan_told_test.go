package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestAPodShowsOneAddressOfEachFamilyTheNodesFirst(t *testing.T) {
	for _, tc := range []struct {
		name            string
		has, node, want []string
	}{
		{"one", []string{"10.0.0.1"}, []string{"192.0.2.1"}, []string{"10.0.0.1"}},
		{"two, in order", []string{"10.0.0.1", "fd00::1"}, []string{"192.0.2.1"}, []string{"10.0.0.1", "fd00::1"}},
		{"the node's family comes first", []string{"10.0.0.1", "fd00::1"}, []string{"2001:db8::1"}, []string{"fd00::1", "10.0.0.1"}},
		{"more than one of a family", []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, []string{"192.0.2.1"}, []string{"10.0.0.1", "fd00::1"}},
		{"only the other family", []string{"fd00::1"}, []string{"192.0.2.1"}, []string{"fd00::1"}},
		{"none", nil, []string{"192.0.2.1"}, nil},
	} {
		if got := podutil.ShownIPs(tc.has, tc.node); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// The texts are those of the events with the reason Killing.
func TestAKillSaysWhy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy v1.RestartPolicy
		change func(*world, *podstate.Container)
		want   string
	}{
		{"the pod ends", v1.RestartPolicyAlways, func(w *world, _ *podstate.Container) { w.s.Removed = true }, "Stopping container a"},
		{"its sandbox is not usable", v1.RestartPolicyAlways, func(w *world, _ *podstate.Container) { w.s.Observed.Sandboxes[0].Ready = false }, "Stopping container a"},
		{"its definition changed", v1.RestartPolicyAlways, func(_ *world, c *podstate.Container) { c.SpecHash = "x" }, "Container a definition changed, will be restarted"},
		{"its state is unknown", v1.RestartPolicyAlways, func(_ *world, c *podstate.Container) { c.State = podstate.StateUnknown }, `Container is in "unknown" state, try killing it before restart`},
		{"its hook failed", v1.RestartPolicyAlways, func(_ *world, c *podstate.Container) { c.Hook = podstate.HookFailed }, "FailedPostStartHook"},
		{"liveness", v1.RestartPolicyAlways, probed(podstate.Liveness), "Container a failed liveness probe, will be restarted"},
		{"startup", v1.RestartPolicyOnFailure, probed(podstate.Startup), "Container a failed startup probe, will be restarted"},
		{"liveness, and that is the end", v1.RestartPolicyNever, probed(podstate.Liveness), "Container a failed liveness probe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(tc.policy, "a"))
			w.settle(time.Minute)
			tc.change(w, w.newest("a"))
			out := Plan(w.s)
			if len(out.Actions) != 1 || out.Actions[0].Reason != tc.want {
				t.Errorf("actions %+v, want %q", out.Actions, tc.want)
			}
		})
	}
}

func TestAKillOfASidecarSaysWhatItIs(t *testing.T) {
	for want, change := range map[string]func(*world, *podstate.Container){
		"Init container side definition changed":                              func(_ *world, c *podstate.Container) { c.SpecHash = "x" },
		`Init container is in "unknown" state, try killing it before restart`: func(_ *world, c *podstate.Container) { c.State = podstate.StateUnknown },
		"Init container side failed liveness probe":                           probed(podstate.Liveness),
		"Init container side failed startup probe":                            probed(podstate.Startup),
	} {
		w := newWorld(withSidecar(testPod(v1.RestartPolicyOnFailure, "a"), "side"))
		w.settle(time.Minute)
		change(w, w.newest("side"))
		if out := Plan(w.s); len(out.Actions) != 1 || out.Actions[0].Reason != want {
			t.Errorf("actions %+v, want %q", out.Actions, want)
		}
	}
}

func probed(k podstate.ProbeType) func(*world, *podstate.Container) {
	return func(w *world, c *podstate.Container) {
		w.s.Probes[podstate.ProbeKey{Container: c.Name, Type: k}] = podstate.ProbeResult{ContainerID: c.ID}
	}
}

func TestAPodThatTheNodeEndsMayTakeHalfAsLongAgain(t *testing.T) {
	for _, tc := range []struct {
		grace int64
		want  time.Duration
	}{{30, 45 * time.Second}, {2, 10 * time.Second}, {math.MaxInt64, podutil.Seconds(math.MaxInt64) + podutil.Seconds(math.MaxInt64)/2}} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.Spec.TerminationGracePeriodSeconds = &tc.grace
		w := newWorld(pod)
		w.settle(time.Minute)
		w.s.Stop = &podstate.Stop{Reason: "Evicted"}
		w.s.EndSince = w.s.Now
		key := podstate.Key{Kind: podstate.KillContainer, Object: w.newest("a").ID}
		w.s.InFlight[key] = podstate.Action{Key: key, GraceTotalSeconds: tc.grace}
		if out := Plan(w.s); out.Overdue || !out.Wake.Equal(w.s.Now.Add(tc.want)) {
			t.Errorf("grace %d: overdue %v, wakes after %v", tc.grace, out.Overdue, out.Wake.Sub(w.s.Now))
		}
		w.s.Now = w.s.Now.Add(tc.want)
		if !Plan(w.s).Overdue {
			t.Errorf("grace %d: not overdue after %v", tc.grace, tc.want)
		}
	}
}

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

func TestARestartCountSurvivesTheLossOfContainersAndOfTheirLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		reported *int32
		logs     map[string]int
		want     int
	}{
		"the status knows":              {ptr(int32(4)), nil, 5},
		"the log knows":                 {nil, map[string]int{"a": 6}, 7},
		"the log knows more":            {ptr(int32(4)), map[string]int{"a": 6}, 7},
		"the status knows more":         {ptr(int32(4)), map[string]int{"a": 2}, 5},
		"nobody knows, it is the first": {nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			if tc.reported != nil {
				w.s.Reported.ContainerStatuses = []v1.ContainerStatus{{
					Name: "a", ContainerID: "containerd://gone", RestartCount: *tc.reported,
					State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}},
				}}
			}
			w.s.LogCounts = tc.logs
			w.settle(time.Minute)
			if got := w.newest("a").RestartCount; got != tc.want {
				t.Errorf("it starts as %d, want %d", got, tc.want)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestTerminationMessagesShareTheirRoomAndKeepWholeCharacters(t *testing.T) {
	long := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: strings.Repeat("ä", 4000)}}}
	st := v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{*long.DeepCopy()}, ContainerStatuses: []v1.ContainerStatus{*long.DeepCopy(), {}}}
	capMessages(&st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 4096 || strings.Trim(got, "ä") != "" {
		t.Errorf("%d bytes of three that share 12 KiB", len(got))
	}
	st.EphemeralContainerStatuses = []v1.ContainerStatus{*long.DeepCopy()}
	capMessages(&st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 3072 {
		t.Errorf("%d bytes of four that share 12 KiB", len(got))
	}
	st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{})
	capMessages(&st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 2456 || strings.Trim(got, "ä") != "" {
		t.Errorf("%d bytes, cut in the middle of a character", len(got))
	}
}

func TestAContainerThatHasNotStartedShowsWhatItWaitsForAndNoMore(t *testing.T) {
	for want, pod := range map[string]*v1.Pod{
		"ContainerCreating": testPod(v1.RestartPolicyAlways, "a"),
		"PodInitializing":   withInit(testPod(v1.RestartPolicyAlways, "a"), "i"), // also when that is done
	} {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "img"}}}
		w := newWorld(pod)
		w.exits["i"] = []int32{0}
		w.fail = func(a podstate.Action) *Failure {
			if a.Kind == podstate.StartContainer && a.Container == "a" {
				return &Failure{Reason: "CreateContainerError", Message: "away", Away: true}
			}
			return nil
		}
		w.settle(time.Minute)
		cs := statusOf(w.out.Status, "a")
		if cs.State.Waiting == nil || cs.State.Waiting.Reason != want || cs.AllocatedResources != nil || cs.Resources != nil || cs.Started == nil {
			t.Errorf("%s: %+v", want, cs)
		}
		if e := w.out.Status.EphemeralContainerStatuses[0]; e.Started != nil || e.State.Running == nil || e.Resources == nil {
			t.Errorf("ephemeral: %+v", e)
		}
	}
}

func TestWhatAPodWasAllocatedIncludesItsOverhead(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: one, Limits: one}
	pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	w := newWorld(pod)
	w.settle(time.Minute)
	if st := w.out.Status; st.AllocatedResources.Cpu().String() != "1250m" || st.Resources.Requests.Cpu().String() != "1250m" || st.Resources.Limits.Cpu().String() != "1250m" {
		t.Errorf("allocated %v, in effect %v", st.AllocatedResources, st.Resources)
	}
}

// As a kubelet 1.36 tells it: a container that comes back from a back-off has not
// ended once more meanwhile.
func TestABackOffIsToldUntilTheContainerRuns(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.exits["a"] = []int32{1, 1}
	w.settle(5 * time.Second)
	told := w.out.Status.ContainerStatuses[0].State.Waiting
	if told == nil || told.Reason != "CrashLoopBackOff" {
		t.Fatalf("status %+v", w.out.Status.ContainerStatuses[0])
	}
	w.s.Now = w.s.Now.Add(time.Minute)
	for w.newest("a").State != podstate.StateRunning {
		if !w.step() {
			t.Fatal("it is not started")
		}
		if cs := w.out.Status.ContainerStatuses[0]; cs.State.Waiting == nil || *cs.State.Waiting != *told || cs.LastTerminationState.Terminated == nil {
			t.Fatalf("status %+v", cs)
		}
	}
	w.step()
	if cs := w.out.Status.ContainerStatuses[0]; cs.State.Running == nil || cs.RestartCount != 2 {
		t.Errorf("status %+v", cs)
	}
}
