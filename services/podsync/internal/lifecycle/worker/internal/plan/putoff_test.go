package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAPodWhoseStartIsPutOffBeginsNothingSaysWhyAndIsLookedAtInTime(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"))
	until := w.s.Now.Add(40 * time.Second)
	w.s.PutOff = &podstate.PutOff{Until: until, Reason: "too many were evicted", Advice: "ask for less"}
	out := Plan(w.s)
	if len(out.Actions) != 0 || !out.Wake.Equal(until) || out.Status.Phase != v1.PodPending || out.Terminating {
		t.Errorf("actions %v, wake %v, status %+v", out.Actions, out.Wake, out.Status)
	}
	if len(out.Waits) != 1 || out.Waits[0].Kind != "pressure" || out.Waits[0].Reason != "too many were evicted" || out.Waits[0].Advice != "ask for less" || !out.Waits[0].Retry.Equal(until) {
		t.Errorf("waits %+v", out.Waits)
	}
	w.s.Now = until
	if out := Plan(w.s); len(out.Actions) == 0 || len(out.Waits) == 0 || out.Waits[0].Kind == "pressure" {
		t.Errorf("when its time has come: actions %v, waits %+v", out.Actions, out.Waits)
	}
	w.s.Now, w.s.PutOff = until.Add(-time.Minute), nil
	if out := Plan(w.s); len(out.Actions) == 0 {
		t.Error("nothing begins though it was let go")
	}
}

func TestAPodWhoseStartIsPutOffEndsAtOnceWhenItIsDeleted(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.PutOff = &podstate.PutOff{Until: w.s.Now.Add(time.Hour)}
	Plan(w.s)
	deleted, grace := metav1.NewTime(w.s.Now.Add(30*time.Second)), int64(30)
	w.s.Pod = w.s.Pod.DeepCopy()
	w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &deleted, &grace
	out := Plan(w.s)
	if !out.Terminating || !out.Stopped {
		t.Errorf("terminating %v, stopped %v, waits %+v", out.Terminating, out.Stopped, out.Waits)
	}
}

func TestAPodHasStartedOnceTheRuntimeOrItsStatusShowsSomethingOfIt(t *testing.T) {
	for name, c := range map[string]struct {
		s    State
		want bool
	}{
		"nothing is known":        {State{}, false},
		"it is Pending":           {State{Reported: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{Name: "a"}}}}, false},
		"a sandbox":               {State{Observed: podstate.Observed{Sandboxes: []podstate.Sandbox{{ID: "s"}}}}, true},
		"a container":             {State{Observed: podstate.Observed{Containers: []podstate.Container{{ID: "c"}}}}, true},
		"its status is Running":   {State{Reported: v1.PodStatus{Phase: v1.PodRunning}}, true},
		"its status has an id":    {State{Reported: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{{ContainerID: "x://c"}}}}, true},
		"its status has restarts": {State{Reported: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{RestartCount: 1}}}}, true},
	} {
		if got := c.s.HasStarted(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAPodsStartMayBePutOffOnceItWasAdmittedAndIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*State)
		want bool
	}{
		"admitted":                 {func(*State) {}, true},
		"not admitted yet":         {func(s *State) { s.Admission.Decision = podstate.AdmissionPending }, false},
		"the runtime was not read": {func(s *State) { s.Observed.Known = false }, false},
		"it is to end":             {func(s *State) { s.Removed = true }, false},
	} {
		s := newWorld(testPod(v1.RestartPolicyAlways, "a")).s
		c.edit(&s)
		if got := s.MayBePutOff(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAPodWithADeadlineWaitsForATenthOfItAtMost(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	now, until := w.s.Now, w.s.Now.Add(40*time.Second)
	if got := w.s.PutOffUntil(until, now); !got.Equal(until) {
		t.Errorf("without a deadline: %v", got)
	}
	limit := int64(100)
	w.s.Pod.Spec.ActiveDeadlineSeconds = &limit
	w.s.Reported.StartTime = nil
	if got := w.s.PutOffUntil(until, now); !got.Equal(now.Add(10 * time.Second)) {
		t.Errorf("of 100 s that begin now: %v", got.Sub(now))
	}
	began := metav1.NewTime(now.Add(-20 * time.Second))
	w.s.Reported.StartTime = &began
	if got := w.s.PutOffUntil(until, now); !got.Equal(now.Add(-10 * time.Second)) {
		t.Errorf("of 100 s that began 20 s ago: %v", got.Sub(now))
	}
	limit = 3600
	if got := w.s.PutOffUntil(until, now); !got.Equal(until) {
		t.Errorf("of an hour: %v", got.Sub(now))
	}
}
