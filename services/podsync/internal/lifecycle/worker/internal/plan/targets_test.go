package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// probedAll gives a container all three kinds of probes.
func probedAll(c *v1.Container) {
	c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = &v1.Probe{}, &v1.Probe{}, &v1.Probe{}
}

func TestWhatIsProbedOfAPodThatRunsAndOfOneThatEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(*State)
		want []string
	}{
		"it runs": {func(*State) {}, []string{
			"a liveness", "a readiness", "a startup", "side liveness", "side readiness", "side startup",
		}},
		"it is deleted: readiness, and all of the sidecars that serve it to the end": {func(s *State) { s.Removed = true }, []string{
			"a readiness", "side liveness", "side readiness", "side startup",
		}},
		"it has ended": {func(s *State) { s.Reported.Phase = v1.PodFailed; s.Observed.Containers = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := withSidecar(testPod(v1.RestartPolicyAlways, "a"), "side")
			probedAll(&pod.Spec.Containers[0])
			probedAll(&pod.Spec.InitContainers[0])
			s := scene(pod, "side running", "a running")
			tc.set(&s)
			var got []string
			for _, target := range Plan(s).Targets {
				got = append(got, fmt.Sprint(target.Container, " ", target.Type))
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("probed: %q, want %q", got, tc.want)
			}
		})
	}
}

// An empty address would be that of the machine on which probes runs.
func TestAContainerWhoseSandboxIsDownIsProbedAtItsOwnAddress(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	w := newWorld(pod)
	w.settle(time.Minute)
	before := w.out.Targets
	if len(before) != 1 || before[0].PodIP == "" {
		t.Fatalf("targets %+v", before)
	}
	w.s.Observed.Sandboxes[0].Ready = false
	if out := Plan(w.s); out.Status.PodIP != "" || len(out.Targets) != 1 || out.Targets[0].PodIP != before[0].PodIP {
		t.Errorf("targets %+v, address %q", out.Targets, out.Status.PodIP)
	}
}
