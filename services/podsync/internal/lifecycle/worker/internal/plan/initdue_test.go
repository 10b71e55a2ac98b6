package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

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
