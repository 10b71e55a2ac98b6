package plan

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

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

// A pod that ends while its init containers run: what was begun counts as a failure, and
// what comes after that was never reached.
func TestAPodThatEndsTellsHowFarItsInitContainersCame(t *testing.T) {
	const failed, unreached = "ContainerStatusUnknown 137", "waits"
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		play func(w *world)
		want []string
	}{
		"nothing was made": {
			pod: withInit(testPod(v1.RestartPolicyAlways, "a"), "i1", "i2"), play: func(*world) {}, want: []string{failed, unreached},
		},
		"the second failed": {
			pod: withInit(testPod(v1.RestartPolicyAlways, "a"), "i1", "i2", "i3"),
			play: func(w *world) {
				w.exits["i1"], w.exits["i2"] = []int32{0}, []int32{3, 3, 3, 3, 3, 3, 3}
				w.settle(20 * time.Second)
			},
			want: []string{"Completed 0", "Error 3", unreached},
		},
		"the first was lost while the second ran": {
			pod: withInit(testPod(v1.RestartPolicyAlways, "a"), "i1", "i2", "i3"),
			play: func(w *world) {
				w.exits["i1"] = []int32{0}
				w.settle(20 * time.Second)
				w.drop(w.newest("i1").ID)
				w.s.Reported = v1.PodStatus{}
			},
			want: []string{failed, "Error 137", unreached},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.pod)
			tc.play(w)
			w.s.TakeStop(podstate.Stop{Reason: "Evicted", Message: "low"}, true, w.s.Now)
			w.settle(time.Minute)
			for i, cs := range w.out.Status.InitContainerStatuses {
				got := unreached
				if end := cs.State.Terminated; end != nil {
					got = fmt.Sprint(end.Reason, " ", end.ExitCode)
				}
				if w.out.Status.ContainerStatuses[0].State.Waiting == nil {
					t.Errorf("the container after them: %+v", w.out.Status.ContainerStatuses[0].State)
				}
				if got != tc.want[i] || cs.Ready != (got == "Completed 0") {
					t.Errorf("init container %s: %s, ready %v, want %s", cs.Name, got, cs.Ready, tc.want[i])
				}
			}
		})
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

// As a kubelet 1.36 shows them, of a container that waits and of one that runs.
func TestTheMountsOfAContainerAreShown(t *testing.T) {
	disabled, possible, enabled := v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "v", MountPath: "/rw"}, {Name: "v", MountPath: "/ro", ReadOnly: true}, {Name: "v", MountPath: "/dis", ReadOnly: true, RecursiveReadOnly: &disabled},
		{Name: "v", MountPath: "/if", ReadOnly: true, RecursiveReadOnly: &possible}, {Name: "v", MountPath: "/on", ReadOnly: true, RecursiveReadOnly: &enabled},
	}
	for what, c := range map[string]struct {
		can  bool // what the runtime's usual handler can do
		runs []string
		made bool
		want v1.RecursiveReadOnlyMode // of /if
	}{
		"waits, and it could be":      {can: true, want: enabled},
		"waits, and it could not be":  {want: disabled},
		"runs with it":                {made: true, runs: []string{"/if", "/on"}, want: enabled},
		"runs without, though it can": {can: true, made: true, runs: []string{"/on"}, want: disabled},
	} {
		w := newWorld(pod)
		w.s.Node.RecursiveReadOnly = c.can
		if c.made {
			w.s.Observed.Containers = []podstate.Container{{ID: "1", Name: "a", State: podstate.StateRunning, StartedAt: start, RecursiveReadOnly: c.runs}}
		}
		got := Plan(w.s).Status.ContainerStatuses[0].VolumeMounts
		if len(got) != 5 {
			t.Fatalf("%s: %+v", what, got)
		}
		for i, mode := range []*v1.RecursiveReadOnlyMode{nil, &disabled, &disabled, &c.want, &enabled} {
			m, want := got[i], pod.Spec.Containers[0].VolumeMounts[i]
			if m.Name != "v" || m.MountPath != want.MountPath || m.ReadOnly != want.ReadOnly || (m.RecursiveReadOnly == nil) != (mode == nil) || mode != nil && *m.RecursiveReadOnly != *mode {
				t.Errorf("%s: %+v", what, m)
			}
		}
	}
}

func TestWhatWasToldOfAContainerThatTheRuntimeHasLostStays(t *testing.T) {
	possible := v1.RecursiveReadOnlyIfPossible
	pod := testPod(v1.RestartPolicyNever, "a", "b")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/if", ReadOnly: true, RecursiveReadOnly: &possible}}
	w := newWorld(pod)
	w.exits["a"] = []int32{3}
	w.settle(0)
	for i := range w.s.Observed.Containers {
		c := &w.s.Observed.Containers[i]
		c.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000}}
		c.RecursiveReadOnly = []string{"/if"}
	}
	w.settle(time.Minute)
	before := w.out.Status.ContainerStatuses[0]
	if before.State.Terminated == nil || before.User == nil || *before.VolumeMounts[0].RecursiveReadOnly != v1.RecursiveReadOnlyEnabled {
		t.Fatalf("status %+v", before)
	}
	w.drop(w.newest("a").ID)
	w.settle(time.Minute)
	if after := w.out.Status.ContainerStatuses[0]; !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("it is told as\n%+v, was\n%+v", after, before)
	}
}

func TestAContainerThatWasDueAndNeverMadeHasFailedWhenItsPodHasEnded(t *testing.T) {
	s := scene(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"), "i 0")
	s.TakeStop(podstate.Stop{Reason: "Evicted"}, true, s.Now)
	if st := Plan(s).Status.ContainerStatuses[0]; st.State.Terminated == nil || st.State.Terminated.ExitCode != 137 {
		t.Errorf("%+v", st.State)
	}
}

func TestWhatWasOnlyMadeHasNoIDAndWhatHasNoImageTheSpecs(t *testing.T) {
	s := scene(testPod(v1.RestartPolicyNever, "a", "b"), "a created", "b 3")
	s.Observed.Containers[0].Image, s.Observed.Containers[0].ImageID = "other:1", "sha256:1"
	st := Plan(s).Status.ContainerStatuses
	if a := st[0]; a.ContainerID != "" || a.ImageID != "" || a.Image != "img" {
		t.Errorf("made: %+v", a)
	}
	if b := st[1]; b.ContainerID != "containerd://c1" || b.Image != "img" {
		t.Errorf("ended: %+v", b)
	}
}

// The API would refuse all of the status.
func TestAnEndThatWasToldIsTakenBackOnlyWhereTheAPITakesIt(t *testing.T) {
	code := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
	}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	for name, tc := range map[string]struct {
		policy          v1.RestartPolicy
		told, now, want v1.ContainerState
	}{
		"it failed, and starts again": {v1.RestartPolicyOnFailure, code(3), runs, runs},
		"it was done":                 {v1.RestartPolicyOnFailure, code(0), runs, code(0)},
		"it never starts again":       {v1.RestartPolicyNever, code(3), runs, code(3)},
		"it always does":              {v1.RestartPolicyAlways, code(0), runs, runs},
		"it has ended once more":      {v1.RestartPolicyNever, code(3), code(4), code(4)},
		"no end was told":             {v1.RestartPolicyNever, runs, v1.ContainerState{}, v1.ContainerState{}},
	} {
		s := scene(testPod(tc.policy, "a"), "a running")
		s.Reported.ContainerStatuses = []v1.ContainerStatus{{Name: "a", State: tc.told}}
		p := newPlanner(&s)
		cs := v1.ContainerStatus{Name: "a", State: tc.now}
		if p.keepEnd(p.viewOf("a"), &cs); !equality.Semantic.DeepEqual(cs.State, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, cs.State, tc.want)
		}
	}
}
