package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// What podsync ends so that it starts again has not exited by itself: another
// image, a resize or a probe of one container is not the end of the others.
func TestWhatWeEndToStartAgainRestartsNoOtherContainer(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	fails := func(which podstate.ProbeType) func(*world) {
		return func(w *world) {
			w.s.Probes[podstate.ProbeKey{Container: "a", Type: which}] = podstate.ProbeResult{ContainerID: w.newest("a").ID}
		}
	}
	for name, tc := range map[string]struct {
		own    v1.ContainerRestartPolicy
		happen func(*world)
		all    bool
	}{
		"another image": {never, func(w *world) {
			pod := w.s.Pod.DeepCopy()
			pod.Spec.Containers[0].Image = "other"
			w.s.Pod = pod
		}, false},
		"liveness":                         {always, fails(podstate.Liveness), false},
		"startup":                          {always, fails(podstate.Startup), false},
		"unknown":                          {always, func(w *world) { w.newest("a").State = podstate.StateUnknown }, false},
		"liveness, and its policy is none": {never, fails(podstate.Liveness), true},
		"an exit of its own":               {always, func(w *world) { w.end(w.newest("a"), 143) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways, "a", "b")
			pod.Spec.Containers[0].RestartPolicy = &tc.own
			pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}},
			}}
			w := newWorld(pod)
			w.killCode = 143
			w.settle(time.Minute)
			tc.happen(w)
			w.settle(time.Minute)
			w.s.Stops, w.s.InFlight, w.s.Failures = map[string]ContainerStop{}, map[podstate.Key]podstate.Action{}, map[podstate.Key]Failure{} // another life
			w.s.Probes = map[podstate.ProbeKey]podstate.ProbeResult{}
			w.settle(time.Hour)
			if a := w.newest("a"); a.RestartCount != 1 || a.State != podstate.StateRunning {
				t.Errorf("it is restarted %d times, and is in state %v", a.RestartCount, a.State)
			}
			if b := w.newest("b"); (b.RestartCount == 1) != tc.all || b.State != podstate.StateRunning {
				t.Errorf("the other is restarted %d times, and is in state %v", b.RestartCount, b.State)
			}
		})
	}
}

// Where the failure of any container restarts all, those that are killed for one
// that failed are not to blame, though their exit codes match as well.
func TestWhatARestartOfAllKillsIsNotToBlame(t *testing.T) {
	pod := testPod(v1.RestartPolicyNever, "a", "b")
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}},
		}}
	}
	w := newWorld(pod)
	w.settle(time.Minute)
	for range 2 { // the second time whoever failed backs off
		w.end(w.newest("a"), 1)
		w.settle(5 * time.Second)
	}
	if b := w.newest("b"); b.RestartCount != 2 || b.State != podstate.StateRunning {
		t.Errorf("the other is restarted %d times, and is in state %v", b.RestartCount, b.State)
	}
	if end := statusOf(w.out.Status, "b").LastTerminationState.Terminated; end == nil || end.Reason != reasonRestartingAll {
		t.Errorf("the other is told to have ended as %+v", end)
	}
	if end := statusOf(w.out.Status, "a").LastTerminationState.Terminated; end == nil || end.ExitCode != 1 {
		t.Errorf("the one that failed is told to have ended as %+v", end)
	}
	w.settle(time.Minute)
	if a := w.newest("a"); a.RestartCount != 2 || a.State != podstate.StateRunning || w.newest("b").RestartCount != 2 {
		t.Errorf("the one that failed is restarted %d times, the other %d", a.RestartCount, w.newest("b").RestartCount)
	}
}
