package plan

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// The API allows thousands of containers, and a pod of somebody's must not keep a core busy.
func TestAPlanOfTenTimesAsManyContainersTakesTenTimesAsManySteps(t *testing.T) {
	steps.Grow(t, func(n int) {
		for s := range scenesOfMany(n) {
			lifeOf(s)
		}
	})
}

// lifeOf takes a state as the runtime has it through plans: as it is, once more when that
// was told, with all of it known from the status alone, and when the pod is deleted.
func lifeOf(s State) {
	plan := func() {
		s.Observe(s.Observed)
		s.Begin(s.Now)
		out := Plan(s)
		s.Reported, s.Waits = out.Status, out.Waits
		for _, a := range out.Actions {
			if len(out.Actions) > 1 {
				s.Launch(a)
			}
		}
	}
	plan()
	plan()
	s.Now = s.Now.Add(time.Minute)
	plan()
	observed := s.Observed
	s.Observed.Containers = nil
	plan()
	s.Observed = observed
	now := metav1.NewTime(s.Now)
	deleted := *s.Pod
	deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &now, ptr(int64(30))
	s.Pod = &deleted
	plan()
	plan()
	s.Now = s.Now.Add(time.Minute)
	plan()
	s.Pod = nil
	plan()
}

// scenesOfMany are pods of n containers, of n of each kind that there is, in all states.
func scenesOfMany(n int) func(yield func(State) bool) {
	return func(yield func(State) bool) {
		for _, pod := range podsOfMany(n) {
			for _, state := range []string{"absent", "running", "starting", "unready", "created", "unknown", "0", "1", "137"} {
				for _, extra := range []func(*State){nil, failingAll, askingForAll, resizingAll} {
					s := sceneOf(pod, state)
					if extra != nil {
						extra(&s)
					}
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

func podsOfMany(n int) []*v1.Pod {
	names := func(prefix string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(prefix, i))
		}
		return out
	}
	debugged := testPod(v1.RestartPolicyNever, "a")
	for _, name := range names("e") {
		debugged.Spec.EphemeralContainers = append(debugged.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "img"}})
	}
	mounted := testPod(v1.RestartPolicyAlways, "a", "b")
	for _, name := range names("v") {
		withImageVolume(mounted, 1, name)
		mounted.Spec.Containers[1].VolumeMounts[0].ReadOnly = true
		mounted.Spec.ReadinessGates = append(mounted.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: v1.PodConditionType(name)})
		mounted.Status.Conditions = append(mounted.Status.Conditions, v1.PodCondition{Type: v1.PodConditionType(name), Status: v1.ConditionFalse})
	}
	pods := []*v1.Pod{
		testPod(v1.RestartPolicyAlways, names("a")...),
		withInit(testPod(v1.RestartPolicyOnFailure, "a"), names("i")...),
		withSidecar(testPod(v1.RestartPolicyNever, "a"), names("s")...),
		withInit(withSidecar(testPod(v1.RestartPolicyOnFailure, names("a")...), names("s")...), names("i")...),
		debugged, mounted,
	}
	for _, pod := range pods {
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = &v1.Probe{}, &v1.Probe{}, &v1.Probe{}
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
		}
	}
	return pods
}

// sceneOf is a pod all of whose containers are in one state.
func sceneOf(pod *v1.Pod, state string) State {
	var words []string
	for _, v := range views(&newWorld(pod).s) {
		if state != "absent" {
			words = append(words, v.spec.Name+" "+state)
		}
	}
	s := scene(pod, words...)
	for _, v := range views(&s) {
		s.Images[v.spec.Name] = Image{Spec: v.spec.Image, Ref: "sha256:1", RestartCount: v.nextCount(&s)}
	}
	return s
}

// failingAll lets all that could be done for a container fail.
func failingAll(s *State) {
	clear(s.Images)
	s.Hooks = map[string]podstate.Hook{}
	for _, v := range views(s) {
		for _, kind := range []podstate.Kind{podstate.PullImage, podstate.StartContainer} {
			s.Failures[podstate.Key{Kind: kind, Object: v.spec.Name}] = Failure{Reason: "Error", Message: "no", Count: 1, At: s.Now}
		}
		if c := v.newest(); c != nil {
			s.Failures[podstate.Key{Kind: podstate.KillContainer, Object: c.ID}] = Failure{Reason: "Error", Message: "no", Count: 1, At: s.Now}
			s.Hooks[c.ID] = podstate.HookRunning
		}
	}
}

// askingForAll lets each container restart all of them when it exits.
func askingForAll(s *State) {
	pod := s.Pod.DeepCopy()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
			}}
		}
	}
	s.Pod = pod
	for i := range s.Observed.Containers {
		s.Observed.Containers[i].Round = i % 2
	}
}

// resizingAll lets each container be given what it does not have, which fails.
func resizingAll(s *State) {
	s.Resize = Resize{Unfinished: true, Raised: true, Generation: 1, At: s.Now}
	for i := range s.Observed.Containers {
		s.Observed.Containers[i].Kernel = &resources.Kernel{Shares: 77}
		s.Failures[podstate.Key{Kind: podstate.ResizeContainer, Object: s.Observed.Containers[i].ID}] = Failure{Reason: "Error", Message: fmt.Sprint("no ", i), Count: 1, At: s.Now}
	}
}
