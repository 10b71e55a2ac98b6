package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestWhatRunsIsPendingAgainOnlyWhileItIsInitializedAnew(t *testing.T) {
	for initialized, want := range map[v1.ConditionStatus]v1.PodPhase{
		v1.ConditionTrue: v1.PodRunning, v1.ConditionFalse: v1.PodPending, "": v1.PodRunning,
	} {
		desired := v1.PodStatus{Phase: v1.PodPending}
		if initialized != "" {
			desired.Conditions = []v1.PodCondition{{Type: v1.PodInitialized, Status: initialized}}
		}
		if stamp(&desired, v1.PodStatus{Phase: v1.PodRunning}, time.Now()); desired.Phase != want {
			t.Errorf("initialized %q: %s, want %s", initialized, desired.Phase, want)
		}
	}
}
