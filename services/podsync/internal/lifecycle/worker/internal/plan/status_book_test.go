package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// scene is a pod as the runtime has it, written down in words: "name state",
// where state is running, created, unknown, starting (its postStart hook runs),
// unready (its startup probe has not succeeded) or an exit code; a name that is
// not there has no container.
func scene(pod *v1.Pod, words ...string) State {
	s := newWorld(pod).s
	s.Observed.Sandboxes = []podstate.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}, HostNetwork: pod.Spec.HostNetwork, CreatedAt: start}}
	s.Volumes.Ended(s.Pod, podstate.Action{Volumes: volumeNames(s.Pod)}, nil, nil)
	for n, w := range words {
		name, state, _ := strings.Cut(w, " ")
		c := podstate.Container{ID: fmt.Sprint("c", n), SandboxID: "s", Name: name, CreatedAt: start, StartedAt: start}
		switch state {
		case "running", "starting":
			c.State = podstate.StateRunning
			if state == "starting" {
				c.Hook = podstate.HookRunning
				s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: name}] = podstate.Action{SandboxID: "s"}
			}
		case "unready":
			c.State = podstate.StateRunning
			s.Probes[podstate.ProbeKey{Container: name, Type: podstate.Startup}] = podstate.ProbeResult{ContainerID: c.ID}
		case "created":
			c.State = podstate.StateCreated
		case "unknown":
			c.State = podstate.StateUnknown
		default:
			c.State, c.FinishedAt = podstate.StateExited, start.Add(time.Second)
			if _, err := fmt.Sscan(state, &c.ExitCode); err != nil {
				panic(err)
			}
		}
		s.Observed.Containers = append(s.Observed.Containers, c)
	}
	return s
}

func phaseOf(s *State, ended bool) v1.PodPhase {
	p := &planner{s: s, sandbox: usableSandbox(s), views: views(s)}
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
		{"ContainersReady: the pod succeeded", scene(testPod(v1.RestartPolicyNever, "a"), "a 0"), v1.ContainersReady, v1.ConditionFalse, "PodCompleted", ""},
		{"ContainersReady: the pod failed", scene(testPod(v1.RestartPolicyNever, "a"), "a 1"), v1.ContainersReady, v1.ConditionFalse, "PodFailed", ""},
		{"Ready: as the containers", scene(testPod(v1.RestartPolicyAlways, "a"), "a running"), v1.PodReady, v1.ConditionTrue, "", ""},
		{"Ready: the containers' reason", scene(testPod(v1.RestartPolicyAlways, "a")), v1.PodReady, v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [a]"},
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

// Each case is a state that a container has, or is to have after a restart was decided.
func TestAContainersStateHasTheReasonOfTheBook(t *testing.T) {
	failing := func(k podstate.Kind, reason string) func(*State) {
		return func(s *State) {
			s.Failures[podstate.Key{Kind: k, Object: "a"}] = Failure{Reason: reason, Message: "why", Count: 1, At: s.Now}
		}
	}
	init := func() *v1.Pod { return withInit(testPod(v1.RestartPolicyNever, "a"), "i") }
	one := func() *v1.Pod { return testPod(v1.RestartPolicyNever, "a") }
	for _, tc := range []struct {
		row   string
		state State
		more  func(*State)
		want  string // state and reason
	}{
		{"waiting: nothing began", scene(one()), nil, "waiting ContainerCreating"},
		{"waiting: init containers come first", scene(init(), "i running"), nil, "waiting PodInitializing"},
		{"waiting: a hook that runs", scene(one(), "a starting"), nil, "waiting ContainerCreating"},
		{"waiting: the pull failed", scene(one()), failing(podstate.PullImage, "ErrImagePull"), "waiting ErrImagePull"},
		{"waiting: the pull failed a while ago", scene(one()), func(s *State) {
			failing(podstate.PullImage, "ErrImagePull")(s)
			s.Now = s.Now.Add(3 * time.Second)
		}, "waiting ImagePullBackOff"},
		{"waiting: never to be pulled", scene(one()), failing(podstate.PullImage, "ErrImageNeverPull"), "waiting ErrImageNeverPull"},
		{"waiting: no image's name", scene(one()), failing(podstate.PullImage, "InvalidImageName"), "waiting InvalidImageName"},
		{"waiting: the image cannot be looked at", scene(one()), failing(podstate.PullImage, "ImageInspectError"), "waiting ImageInspectError"},
		{"waiting: it cannot be configured", scene(one()), failing(podstate.StartContainer, "CreateContainerConfigError"), "waiting CreateContainerConfigError"},
		{"waiting: it cannot be made", scene(one()), failing(podstate.StartContainer, "CreateContainerError"), "waiting CreateContainerError"},
		{"waiting: it cannot be started", scene(one()), failing(podstate.StartContainer, "RunContainerError"), "waiting RunContainerError"},
		{"waiting: its hook failed", scene(one()), failing(podstate.StartContainer, "PostStartHookError"), "waiting PostStartHookError"},
		{"waiting: it crashes", scene(testPod(v1.RestartPolicyAlways, "a"), "a 1"), func(s *State) {
			s.Observed.Containers[0].Backoff, s.Now = 10*time.Second, start.Add(5*time.Second)
		}, "waiting CrashLoopBackOff"},
		{"running", scene(one(), "a running"), nil, "running"},
		{"terminated: well", scene(one(), "a 0"), nil, "terminated Completed"},
		{"terminated: not well", scene(one(), "a 2"), nil, "terminated Error"},
		{"terminated: as the runtime says", scene(one(), "a 137"), func(s *State) { s.Observed.Containers[0].Reason = "OOMKilled" }, "terminated OOMKilled"},
		{"terminated: it could not be started", scene(one(), "a 128"), func(s *State) { s.Observed.Containers[0].Reason = "StartError" }, "terminated StartError"},
		{"terminated: the pod has ended before it began", scene(one()), func(s *State) { s.Removed = true }, "terminated ContainerStatusUnknown"},
		{"waiting: the pod has ended before its init containers did", scene(init()), func(s *State) { s.Removed = true }, "waiting PodInitializing"},
		{"terminated: it was lost", scene(one()), func(s *State) {
			s.Reported.ContainerStatuses = []v1.ContainerStatus{{Name: "a", ContainerID: "containerd://x", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		}, "terminated ContainerStatusUnknown"},
	} {
		t.Run(tc.row, func(t *testing.T) {
			if tc.more != nil {
				tc.more(&tc.state)
			}
			st := Plan(tc.state).Status.ContainerStatuses[0].State
			got := "running"
			switch {
			case st.Waiting != nil:
				got = "waiting " + st.Waiting.Reason
			case st.Terminated != nil:
				got = "terminated " + st.Terminated.Reason
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}
