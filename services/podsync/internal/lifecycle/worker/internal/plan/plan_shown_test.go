package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// crashing is the state of a pod whose container ran once and exited.
func crashing(pod *v1.Pod, more ...podstate.Container) State {
	name := pod.Spec.Containers[0].Name
	return State{
		Pod: pod, UID: pod.UID, Now: start.Add(time.Hour), Admission: podstate.Admission{Decision: podstate.Admitted},
		Node:    Node{NetworkReady: true, RuntimeName: "containerd"},
		Volumes: Volumes{Of: map[string]Volume{"": {SetUp: true}}},
		Observed: podstate.Observed{
			Known:     true,
			Sandboxes: []podstate.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}, CreatedAt: start}},
			Containers: append(more, podstate.Container{
				ID: "c0", SandboxID: "s", Name: name, State: podstate.StateExited, ExitCode: 1, CreatedAt: start, StartedAt: start, FinishedAt: start.Add(time.Second),
			}),
		},
	}
}

func TestAContainerThatWasMadeButNotStartedChangesNoStatus(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	name := pod.Spec.Containers[0].Name
	before := Plan(crashing(pod)).Status
	made := podstate.Container{ID: "c1", SandboxID: "s", Name: name, RestartCount: 1, State: podstate.StateCreated, CreatedAt: start.Add(2 * time.Second)}
	after := Plan(crashing(pod, made)).Status
	if before.Phase != v1.PodRunning || after.Phase != v1.PodRunning {
		t.Errorf("phase %s before and %s after, want Running", before.Phase, after.Phase)
	}
	if b, a := before.ContainerStatuses[0], after.ContainerStatuses[0]; a.RestartCount != b.RestartCount || a.ContainerID != b.ContainerID || a.State.String() != b.State.String() {
		t.Errorf("container before %+v\nafter %+v", b, a)
	}
}

func TestARunningContainerIsShownBeforeItsStartIsOver(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	name := pod.Spec.Containers[0].Name
	running := podstate.Container{ID: "c1", SandboxID: "s", Name: name, RestartCount: 1, State: podstate.StateRunning, StartedAt: start.Add(2 * time.Second)}
	s := crashing(pod, running)
	s.InFlight = map[podstate.Key]podstate.Action{{Kind: podstate.StartContainer, Object: name}: {Attempt: 1, SandboxID: "s"}}
	if st := Plan(s).Status.ContainerStatuses[0]; st.State.Running == nil || st.RestartCount != 1 {
		t.Errorf("shown as %+v", st)
	}
	s.Observed.Containers[0].Hook = podstate.HookRunning
	if st := Plan(s).Status.ContainerStatuses[0]; st.State.Running != nil || st.Ready {
		t.Errorf("with a postStart hook under way it is shown as %+v", st)
	}
}

func TestARestartCountNeverFalls(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	s := crashing(pod)
	s.Reported.ContainerStatuses = []v1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, RestartCount: 5}}
	if st := Plan(s).Status.ContainerStatuses[0]; st.RestartCount != 5 {
		t.Errorf("restart count %d, want 5", st.RestartCount)
	}
}

func TestARestartCountNeverFallsThoughTheNewestRecordIsLost(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"))
	w.exits["i"] = []int32{0, 0}
	w.settle(time.Minute)
	w.s.Observed.Sandboxes[0].Ready = false // and all start again in another one
	w.end(w.newest("a"), 137)
	w.settle(time.Minute)
	w.drop(w.newest("i").ID)
	if st := Plan(w.s).Status.InitContainerStatuses[0]; st.RestartCount != 1 || w.newest("i") == nil {
		t.Errorf("restart count %d, want 1", st.RestartCount)
	}
	w.s.Reported = Plan(w.s).Status
	w.s.Observed.Containers, w.s.Observed.Sandboxes = nil, nil
	if st := Plan(w.s).Status.InitContainerStatuses[0]; st.RestartCount != 1 || st.State.Waiting == nil {
		t.Errorf("when nothing is left: restart count %d, want 1", st.RestartCount)
	}
}

func TestAnOrphanHasTheGracePeriodThatItsContainersWereMadeWith(t *testing.T) {
	for _, tc := range []struct{ annotated, want int64 }{{0, 2}, {30, 30}} {
		s := State{UID: "u", Now: start, Observed: podstate.Observed{Known: true, Containers: []podstate.Container{
			{ID: "c", SandboxID: "s", Name: "c", State: podstate.StateRunning, GraceSeconds: tc.annotated},
		}}}
		out := Plan(s)
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != tc.want {
			t.Errorf("annotated %d: %+v", tc.annotated, out.Actions)
		}
	}
}

func TestAnOrphanRunsThePreStopHookThatItWasMadeWith(t *testing.T) {
	s := State{UID: "u", Now: start, Observed: podstate.Observed{Known: true, Containers: []podstate.Container{
		{ID: "c", SandboxID: "s", Name: "c", State: podstate.StateRunning, GraceSeconds: 30, PreStop: &v1.LifecycleHandler{}},
	}}}
	if got := kinds(Plan(s).Actions); got[podstate.BeginStop] != 1 || got[podstate.KillContainer] != 0 {
		t.Fatalf("actions %v", got)
	}
	stop := asked(start, podstate.CauseEnd, 30)
	stop.PreStopDone = true
	s.Stops = map[string]ContainerStop{"c": stop}
	if got := kinds(Plan(s).Actions); got[podstate.BeginStop] != 0 || got[podstate.KillContainer] != 1 {
		t.Fatalf("after the hook: %v", got)
	}
}

func TestASandboxIsRemovedOnlyWhenItsStopHasReturned(t *testing.T) {
	s := State{UID: "u", Now: start, Cleaned: Cleaned{Volumes: true}, Observed: podstate.Observed{Known: true, Sandboxes: []podstate.Sandbox{{ID: "s"}}}}
	s.InFlight = map[podstate.Key]podstate.Action{{Kind: podstate.StopSandbox, Object: "s"}: {}}
	if out := Plan(s); len(out.Actions) != 0 {
		t.Errorf("begun while the sandbox's network is taken down: %+v", out.Actions)
	}
	s.InFlight, s.StoppedSandboxes = nil, map[string]bool{"s": true}
	if got := kinds(Plan(s).Actions); got[podstate.RemoveSandbox] != 1 || got[podstate.RemoveCgroup] != 1 {
		t.Errorf("afterwards: %v", got)
	}
}

func TestAPodHasStoppedWithItsLastProcess(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	s := crashing(pod)
	s.Pod = pod.DeepCopy()
	now := metav1.NewTime(s.Now)
	s.Pod.DeletionTimestamp = &now
	s.InFlight = map[podstate.Key]podstate.Action{{Kind: podstate.KillContainer, Object: "c0"}: {}}
	out := Plan(s)
	if !out.Stopped || out.Status.Phase != v1.PodFailed || kinds(out.Actions)[podstate.StopSandbox] != 1 {
		t.Errorf("with the stop's call still under way: stopped %v, phase %s, actions %v", out.Stopped, out.Status.Phase, out.Actions)
	}
	s.Removed, s.Observed.Sandboxes[0].Ready = true, false
	if got := kinds(Plan(s).Actions); got[podstate.RemoveContainer] != 0 {
		t.Errorf("the container is removed under its own stop: %v", got)
	}
}

func TestAStartThatWasCutShortIsShownAsTheRuntimeHasItOnceThePodHasEnded(t *testing.T) {
	cut := podstate.Container{
		ID: "c1", SandboxID: "s", State: podstate.StateCreated, CreatedAt: start.Add(2 * time.Second), FinishedAt: start.Add(3 * time.Second),
		ExitCode: 128, Reason: "StartError", Message: "context canceled",
	}
	ended := func() State {
		s := crashing(testPod(v1.RestartPolicyNever, "a"))
		s.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
		return s
	}
	debug := ended()
	cut.Name = "debug"
	debug.Observed.Containers = append(debug.Observed.Containers, cut)
	again := ended()
	cut.Name, cut.RestartCount = again.Pod.Spec.Containers[0].Name, 1
	again.Observed.Containers = append([]podstate.Container{cut}, again.Observed.Containers...)
	now := metav1.NewTime(again.Now)
	again.Pod.DeletionTimestamp = &now
	for name, tc := range map[string]struct {
		state State
		of    func(*v1.PodStatus) v1.ContainerStatus
		count int32
	}{
		"a debug container":     {debug, func(st *v1.PodStatus) v1.ContainerStatus { return st.EphemeralContainerStatuses[0] }, 0},
		"a container's restart": {again, func(st *v1.PodStatus) v1.ContainerStatus { return st.ContainerStatuses[0] }, 1},
	} {
		out := Plan(tc.state)
		got := tc.of(&out.Status)
		end := got.State.Terminated
		if !out.Stopped || end == nil || end.ExitCode != 128 || end.Reason != "StartError" || end.ContainerID != "containerd://c1" ||
			got.ContainerID != "containerd://c1" || got.RestartCount != tc.count {
			t.Errorf("%s: stopped %v, shown as %+v", name, out.Stopped, got)
		}
	}
	running := ended()
	running.Pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	running.Observed.Containers = again.Observed.Containers
	if got := Plan(running).Status.ContainerStatuses[0]; got.ContainerID != "containerd://c0" || got.RestartCount != 0 {
		t.Errorf("while the pod goes on it is shown as %+v, want its last end", got)
	}
}

func TestARestartCountOutlivesTheRuntimesRecordAndAStartThatCameToNothing(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	s := crashing(pod)
	name := pod.Spec.Containers[0].Name
	s.Reported.ContainerStatuses = []v1.ContainerStatus{{
		Name: name, RestartCount: 1, ContainerID: "containerd://c1",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}},
	}}
	made := podstate.Container{ID: "c2", SandboxID: "s", Name: name, RestartCount: 2, State: podstate.StateCreated, CreatedAt: s.Now}
	s.Images = map[string]Image{name: {Spec: pod.Spec.Containers[0].Image, Ref: "ref", RestartCount: 2}}
	for _, tc := range []struct {
		name string
		has  []podstate.Container
	}{
		{"the runtime has forgotten all", nil},
		{"the next one is made", []podstate.Container{made}},
		{"and is removed again, for it did not start", nil},
	} {
		s.Observed.Containers = tc.has
		out := Plan(s)
		st := out.Status.ContainerStatuses[0]
		if end := st.LastTerminationState.Terminated; st.RestartCount != 1 || end == nil || end.ContainerID != "containerd://c1" {
			t.Errorf("%s: shown as %+v", tc.name, st)
		}
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.StartContainer || out.Actions[0].Attempt != 2 {
			t.Errorf("%s: actions %+v, want the start of attempt 2", tc.name, out.Actions)
		}
		s.Reported = out.Status
	}
}

func TestAnInitContainerThatIsToRunAgainIsNotReady(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"))
	w.exits["i"] = []int32{0, 0}
	w.settle(time.Minute)
	if st := w.out.Status.InitContainerStatuses[0]; !st.Ready || st.State.Terminated == nil {
		t.Fatalf("status %+v", st)
	}
	w.s.Observed.Sandboxes[0].Ready = false
	w.end(w.newest("a"), 137)
	for range 20 {
		w.step()
		if st := w.out.Status.InitContainerStatuses[0]; st.Ready && st.State.Terminated == nil {
			t.Fatalf("status %+v", st)
		}
	}
	w.settle(time.Minute)
	if st := w.out.Status.InitContainerStatuses[0]; !st.Ready || w.out.Status.Phase != v1.PodRunning {
		t.Errorf("status %+v", st)
	}
}
