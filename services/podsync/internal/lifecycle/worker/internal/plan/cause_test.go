package plan

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// What podsync ends to start it again is started again, as its event says and
// whatever it exits with; and it is never told to have ended where the API would
// not take it back.
func TestWhatWeEndToStartAgainStartsAgainWhateverItExitsWith(t *testing.T) {
	never, onFailure := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	liveness, startup := probed(podstate.Liveness), probed(podstate.Startup)
	definition := func(w *world, _ *podstate.Container) {
		w.s.Pod = w.s.Pod.DeepCopy()
		w.s.Pod.Spec.Containers[0].Image = "other"
	}
	unknown := func(_ *world, c *podstate.Container) { c.State = podstate.StateUnknown }
	hook := func(_ *world, c *podstate.Container) { c.Hook = podstate.HookFailed }
	sandbox := func(w *world, _ *podstate.Container) { w.s.Observed.Sandboxes[0].Ready = false }
	for _, tc := range []struct {
		name     string
		policy   v1.RestartPolicy
		own      *v1.ContainerRestartPolicy
		change   func(*world, *podstate.Container)
		code     int32
		restarts bool
	}{
		{"liveness", v1.RestartPolicyAlways, nil, liveness, 0, true},
		{"liveness", v1.RestartPolicyOnFailure, nil, liveness, 0, true},
		{"liveness", v1.RestartPolicyOnFailure, nil, liveness, 137, true},
		{"liveness", v1.RestartPolicyNever, nil, liveness, 0, false},
		{"liveness", v1.RestartPolicyNever, nil, liveness, 137, false},
		{"liveness, a policy of its own", v1.RestartPolicyNever, &onFailure, liveness, 0, true},
		{"liveness, a policy of its own", v1.RestartPolicyAlways, &never, liveness, 137, false},
		{"startup", v1.RestartPolicyOnFailure, nil, startup, 0, true},
		{"startup", v1.RestartPolicyNever, nil, startup, 0, false},
		{"definition", v1.RestartPolicyOnFailure, nil, definition, 0, true},
		{"definition", v1.RestartPolicyNever, nil, definition, 0, true},
		{"definition", v1.RestartPolicyNever, nil, definition, 137, true},
		{"definition, a policy of its own", v1.RestartPolicyOnFailure, &never, definition, 1, true},
		{"unknown", v1.RestartPolicyNever, nil, unknown, 0, true},
		{"hook", v1.RestartPolicyOnFailure, nil, hook, 0, false},
		{"hook", v1.RestartPolicyOnFailure, nil, hook, 143, true},
		{"sandbox", v1.RestartPolicyOnFailure, nil, sandbox, 0, true},
		{"sandbox", v1.RestartPolicyNever, nil, sandbox, 137, false},
		{"sandbox, a policy of its own", v1.RestartPolicyAlways, &never, sandbox, 137, false},
		{"sandbox, a policy of its own", v1.RestartPolicyAlways, &onFailure, sandbox, 0, true},
		{"sandbox, a policy of its own", v1.RestartPolicyNever, &onFailure, sandbox, 0, true},
		{"sandbox, a policy of its own", v1.RestartPolicyNever, &onFailure, sandbox, 137, true},
	} {
		t.Run(fmt.Sprintf("%s under %s with exit code %d", tc.name, tc.policy, tc.code), func(t *testing.T) {
			w := newWorld(testPod(tc.policy, "a", "b"))
			w.s.Pod.Spec.Containers[0].RestartPolicy = tc.own
			w.killCode = tc.code
			w.settle(time.Minute)
			tc.change(w, w.newest("a"))
			w.log = nil
			for range 20 {
				before := w.s.Reported
				w.step()
				if why := forbidden(w.s.Pod, before, w.out.Status); why != "" {
					t.Error(why)
				}
			}
			w.settle(time.Minute)
			if again := w.count("start container a") == 1; again != tc.restarts {
				t.Errorf("restarted: %v; phase %s, log %v", again, w.out.Status.Phase, w.log)
			}
		})
	}
}

func TestAContainerThatEndedByItselfStaysAsItsPolicySaysWhenItsDefinitionChanges(t *testing.T) {
	for policy, starts := range map[v1.RestartPolicy]int{v1.RestartPolicyNever: 0, v1.RestartPolicyOnFailure: 0, v1.RestartPolicyAlways: 1} {
		w := newWorld(testPod(policy, "a", "b"))
		w.exits["a"] = []int32{0}
		for w.newest("a") == nil || w.newest("a").State != podstate.StateExited {
			w.step()
			w.s.Now = w.s.Now.Add(time.Second)
			w.expire()
		}
		w.s.Pod = w.s.Pod.DeepCopy()
		w.s.Pod.Spec.Containers[0].Image = "other"
		w.log = nil
		w.settle(time.Minute)
		if w.count("start container a") != starts || w.out.Status.Phase != v1.PodRunning {
			t.Errorf("%s: phase %s, log %v", policy, w.out.Status.Phase, w.log)
		}
	}
}

func TestARestartThatIsOwedOutlivesPodsync(t *testing.T) {
	for name, change := range map[string]func(*world, *podstate.Container){
		"its probe had failed": probed(podstate.Liveness),
		"it was told to wait": func(w *world, c *podstate.Container) {
			w.s.Pod = w.s.Pod.DeepCopy()
			w.s.Pod.Spec.Containers[0].Image = "other"
			w.s.Stops[c.ID] = asked(w.s.Now, podstate.CauseDefinition, 30)
		},
	} {
		w := newWorld(testPod(v1.RestartPolicyOnFailure, "a"))
		w.settle(time.Minute)
		c := w.newest("a")
		change(w, c)
		w.end(c, 0)
		w.s.Reported = Plan(w.s).Status
		w.s.Stops, w.s.Images, w.log = map[string]ContainerStop{}, map[string]Image{}, nil // a new life
		w.settle(time.Minute)
		if w.count("start container a") != 1 || w.out.Status.Phase != v1.PodRunning {
			t.Errorf("%s: phase %s, log %v", name, w.out.Status.Phase, w.log)
		}
	}
}

// forbidden says which change of a status the apiserver refuses: a container
// that has ended runs again only where a rule or policy starts it again.
// Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
func forbidden(pod *v1.Pod, old, now v1.PodStatus) string {
	specs := map[string]v1.Container{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			specs[c.Name] = c
			for _, r := range c.RestartPolicyRules {
				if r.Action == v1.ContainerRestartRuleActionRestartAllContainers {
					return ""
				}
			}
		}
	}
	after := map[string]v1.ContainerState{}
	for _, list := range [][]v1.ContainerStatus{now.InitContainerStatuses, now.ContainerStatuses, now.EphemeralContainerStatuses} {
		for _, c := range list {
			after[c.Name] = c.State
		}
	}
	for _, list := range [][]v1.ContainerStatus{old.InitContainerStatuses, old.ContainerStatuses, old.EphemeralContainerStatuses} {
		for _, c := range list {
			is, there := after[c.Name]
			if c.State.Terminated == nil || !there || is.Terminated != nil {
				continue
			}
			policy, code := pod.Spec.RestartPolicy, c.State.Terminated.ExitCode
			spec, known := specs[c.Name]
			if !known {
				return "an ephemeral container that has ended runs again: " + c.Name
			}
			matched := false
			if spec.RestartPolicy != nil {
				policy = v1.RestartPolicy(*spec.RestartPolicy)
				for _, r := range spec.RestartPolicyRules {
					matched = matched || exitMatches(r.ExitCodes, code)
				}
			}
			if matched || policy == v1.RestartPolicyAlways || policy == v1.RestartPolicyOnFailure && code != 0 {
				continue
			}
			return fmt.Sprintf("container %s ended with %d under %s, and then it is told to be %+v", c.Name, code, policy, is)
		}
	}
	return ""
}

// A preStop hook that has told an application to go leaves nothing behind that
// may run on.
func TestAStopThatHasBegunIsNotTakenBackWithItsReason(t *testing.T) {
	for _, inFlight := range []bool{true, false} {
		w := newWorld(withPreStop(testPod(v1.RestartPolicyNever, "a"), "a"))
		w.settle(time.Minute)
		c := w.newest("a")
		spec := &w.s.Pod.Spec.Containers[0]
		image := spec.Image
		spec.Image = "other"
		begin := Plan(w.s).Actions
		if len(begin) != 1 || begin[0].Kind != podstate.BeginStop {
			t.Fatalf("actions %+v", begin)
		}
		stop := asked(w.s.Now, begin[0].Cause, begin[0].GraceTotalSeconds)
		stop.PreStopDone = !inFlight
		w.s.Stops[c.ID] = stop
		if inFlight {
			w.s.InFlight[begin[0].Key] = begin[0]
		}
		spec.Image = image
		w.s.Now = w.s.Now.Add(10 * time.Second)
		if out := Plan(w.s); inFlight && (len(out.Actions) > 0 || len(out.Cancel) > 0) {
			t.Errorf("while its hook runs: %+v, cancel %v", out.Actions, out.Cancel)
		}
		delete(w.s.InFlight, begin[0].Key)
		stop = asked(w.s.Now.Add(-10*time.Second), begin[0].Cause, 30)
		stop.PreStopDone = true
		w.s.Stops[c.ID] = stop
		out := Plan(w.s)
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != 20 {
			t.Errorf("then: %+v", out.Actions)
		}
		if w.settle(time.Minute); w.newest("a").State != podstate.StateRunning || w.newest("a").RestartCount != 1 {
			t.Errorf("in the end: %+v", w.newest("a"))
		}
	}
}
