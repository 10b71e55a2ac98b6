package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestOfWhichPodsAdmissionIsAskedAndWhichAreRejectedAfterAll(t *testing.T) {
	type says struct{ admitted, unwanted, elsewhere bool }
	for name, tc := range map[string]struct {
		change func(*State)
		want   says
	}{
		"a new pod":                        {func(*State) {}, says{elsewhere: true}},
		"a sandbox of it is there":         {func(s *State) { s.Observed.Sandboxes = []podstate.Sandbox{{ID: "s"}} }, says{admitted: true, elsewhere: true}},
		"a container of it is there":       {func(s *State) { s.Observed.Containers = []podstate.Container{{ID: "c"}} }, says{}},
		"a previous run has begun it":      {func(s *State) { s.Begun = true }, says{admitted: true, elsewhere: true}},
		"it has ended":                     {func(s *State) { s.Pod.Status.Phase = v1.PodFailed }, says{admitted: true, elsewhere: true}},
		"its source has removed it":        {func(s *State) { s.Removed = true }, says{unwanted: true, elsewhere: true}},
		"the node ends it":                 {func(s *State) { s.Stop = &podstate.Stop{} }, says{unwanted: true, elsewhere: true}},
		"its object is being deleted":      {func(s *State) { s.Pod.DeletionTimestamp = &metav1.Time{Time: start} }, says{unwanted: true, elsewhere: true}},
		"it runs, and is being deleted":    {func(s *State) { s.Pod.DeletionTimestamp, s.Begun = &metav1.Time{Time: start}, true }, says{admitted: true, unwanted: true, elsewhere: true}},
		"the apiserver only knows the old": {func(s *State) { s.Reported.Phase = v1.PodFailed }, says{elsewhere: true}},
	} {
		s := newWorld(testPod(v1.RestartPolicyAlways, "a")).s
		s.Admission = podstate.Admission{}
		tc.change(&s)
		if got := (says{s.Admitted(), s.Unwanted(), s.MayBeElsewhere()}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
