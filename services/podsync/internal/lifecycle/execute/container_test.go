package execute

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

func TestStartingDealsFirstWithWhatIsThere(t *testing.T) {
	taken := status.Error(codes.Unknown, `failed to reserve container name "c": name "c" is reserved for "x"`)
	lost := status.Error(codes.Unavailable, "lost")
	for name, tc := range map[string]struct {
		there  []podstate.Container
		fail   map[string][]error
		want   []string
		reason string
	}{
		"nothing":           {nil, nil, []string{"saw sb", "create c/1 in sb", "start made", "saw made"}, ""},
		"an earlier one":    {[]podstate.Container{{ID: "old", Name: "c", State: podstate.StateExited}}, nil, []string{"saw sb", "create c/1 in sb", "start made", "saw made"}, ""},
		"half made":         {[]podstate.Container{{ID: "half", Name: "c", RestartCount: 1, State: podstate.StateCreated}}, nil, []string{"rm half", "gone half", "saw sb", "create c/1 in sb", "start made", "saw made"}, ""},
		"one that runs":     {[]podstate.Container{{ID: "run", Name: "c", RestartCount: 1, State: podstate.StateRunning}}, nil, nil, ""},
		"this one, ended":   {[]podstate.Container{{ID: "end", Name: "c", RestartCount: 1, SandboxID: "sb", State: podstate.StateExited}}, nil, nil, ""},
		"half made, stuck":  {[]podstate.Container{{ID: "half", Name: "c", State: podstate.StateCreated}}, map[string][]error{"rm": {lost}}, []string{"rm half", "refresh"}, reasonCreate},
		"its name is taken": {nil, map[string][]error{"create": {taken}}, []string{"saw sb", "create c/1 in sb", "refresh", "refresh"}, reasonCreate},
		"create fails":      {nil, map[string][]error{"create": {lost}}, []string{"saw sb", "create c/1 in sb", "saw sb", "refresh"}, reasonCreate},
		"start fails":       {nil, map[string][]error{"start": {lost}}, []string{"saw sb", "create c/1 in sb", "start made", "saw sb", "refresh"}, reasonRun},
		"config is missing": {nil, map[string][]error{"config": {reason.New(reasonConfig, errors.New(`configmap "x" not found`))}}, []string{"saw sb", "refresh"}, reasonConfig},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &host{now: podstate.Observed{Containers: tc.there}, fail: tc.fail}
				_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(startC))
				if reason.Of(err) != tc.reason {
					t.Errorf("error %v, want reason %q", err, tc.reason)
				}
				if got := calls(h.log); !slices.Equal(got, tc.want) {
					t.Errorf("calls %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestAStartInASandboxThatGoesDownIsNoAttempt(t *testing.T) {
	refused := status.Error(codes.Unknown, "sandbox container \"sb\" is not running")
	for name, tc := range map[string]struct {
		downAt string             // the call by which the sandbox is down
		made   podstate.Container // what is seen of the container then
		fail   map[string][]error
		want   []string
		reason string
	}{
		"down before the start": {"saw", podstate.Container{}, nil, []string{"saw sb"}, ""},
		"down at the creation":  {"create", podstate.Container{}, map[string][]error{"create": {refused}}, []string{"saw sb", "create c/1 in sb", "saw sb"}, ""},
		"down at the start": {
			"start", podstate.Container{State: podstate.StateCreated}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made", "rm made", "gone made"}, "",
		},
		"it failed to start": {
			"start", podstate.Container{State: podstate.StateExited}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made", "rm made", "gone made"}, "",
		},
		"what was made stays": {
			"start", podstate.Container{State: podstate.StateCreated}, map[string][]error{"start": {refused}, "rm": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made", "rm made", "refresh"}, reasonRun,
		},
		"it ran and ended with the sandbox": {
			"start", podstate.Container{State: podstate.StateExited, StartedAt: time.Unix(1, 0)}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made"}, "",
		},
		"it runs still": {
			"start", podstate.Container{State: podstate.StateRunning, StartedAt: time.Unix(1, 0)}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{fail: tc.fail}
			h.called = func(name string) {
				if name == tc.downAt {
					h.now.Sandboxes = []podstate.Sandbox{{ID: "sb"}}
					if tc.made.ID = "made"; name == "start" {
						h.now.Containers = []podstate.Container{tc.made}
					}
				}
			}
			_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(startC))
			if reason.Of(err) != tc.reason {
				t.Errorf("error %v, want reason %q", err, tc.reason)
			}
			if got := calls(h.log); !slices.Equal(got, tc.want) {
				t.Errorf("calls %q, want %q", got, tc.want)
			}
			if said := slices.ContainsFunc(h.log, func(l string) bool { return strings.HasPrefix(l, "event Failed") }); said != (tc.reason != "") {
				t.Errorf("an event of a failure: %v, in %q", said, h.log)
			}
		})
	}
}

func TestPostStartIsKnownBeforeTheContainerRunsAndItsFailureIsToldOf(t *testing.T) {
	for _, fails := range []bool{false, true} {
		h := &host{hook: func(context.Context) error {
			if fails {
				return errors.New("no")
			}
			return nil
		}}
		task := h.task(startC)
		task.Pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
		_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
		want := []podstate.Hook{podstate.HookRunning, podstate.HookDone}
		if fails {
			want[1] = podstate.HookFailed
		}
		if !slices.Equal(h.hooks["made"], want) || (err != nil) != fails {
			t.Errorf("hook fails %v: told %v, error %v", fails, h.hooks["made"], err)
		}
	}
}

func TestAFailedStartIsToldInTheRuntimesOwnWords(t *testing.T) {
	const why = "failed to create containerd task: exec: no such file"
	for _, call := range []string{"create", "start"} {
		h := &host{fail: map[string][]error{call: {status.Error(codes.Unknown, why)}}}
		_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(startC))
		if err == nil || err.Error() != why || status.Code(err) != codes.Unknown || !slices.Contains(h.log, "event Failed Error: "+why) {
			t.Errorf("%s: error %v, calls %q", call, err, h.log)
		}
	}
}

func TestADebugContainerJoinsTheContainerItNames(t *testing.T) {
	for name, tc := range map[string]struct {
		state  podstate.ContainerState
		target string
		reason string
	}{
		"it runs":      {podstate.StateRunning, "r", ""},
		"it has ended": {podstate.StateExited, "", reasonConfig},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: tc.state}}}}
			task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "debug"}, Container: "debug", SandboxID: "sb"})
			task.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}, TargetContainerName: "c",
			}}
			_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
			if reason.Of(err) != tc.reason || h.target != tc.target {
				t.Errorf("error %v, target %q; want reason %q, target %q", err, h.target, tc.reason, tc.target)
			}
		})
	}
}

func TestADebugContainerNeedsNoRunningTargetWhereProcessesAreShared(t *testing.T) {
	for name, share := range map[string]func(*v1.PodSpec){
		"the pod's":  func(s *v1.PodSpec) { s.ShareProcessNamespace = ptr.To(true) },
		"the host's": func(s *v1.PodSpec) { s.HostPID = true },
	} {
		for _, state := range []podstate.ContainerState{podstate.StateExited, podstate.StateRunning} {
			h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: state}}}}
			task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "debug"}, Container: "debug", SandboxID: "sb"})
			share(&task.Pod.Spec)
			task.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}, TargetContainerName: "c",
			}}
			if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task); err != nil || h.target != "" {
				t.Errorf("in %s namespace, the target %v: error %v, joins %q", name, state, err, h.target)
			}
		}
	}
}
