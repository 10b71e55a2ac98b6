package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

func TestAStatusTellsWhetherAResizeWasInEffect(t *testing.T) {
	with := func(observed int64, conditions ...v1.PodCondition) v1.PodStatus {
		return v1.PodStatus{ObservedGeneration: observed, Conditions: conditions}
	}
	under := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: 2}
	waits := func(generation int64) v1.PodCondition {
		return v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, ObservedGeneration: generation}
	}
	for name, tc := range map[string]struct {
		st   v1.PodStatus
		want bool
	}{
		"nothing is left to do":              {with(2), true},
		"older than the resize":              {with(1), false},
		"under way":                          {with(2, under), false},
		"it waited, and was then allocated":  {with(2, waits(2)), false},
		"a later one waits":                  {with(3, waits(3)), true},
		"a later one waits, it is under way": {with(3, waits(3), under), false},
	} {
		if got := toldFinished(&tc.st, 2); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhatEndsOfAnEarlierResizeIsNotTheEndOfTheNext(t *testing.T) {
	s := &State{Resize: Resize{Generation: 3, Unfinished: true}}
	r := &s.Resize
	s.ResizeActed(podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, Generation: 2}, time.Time{})
	if r.Raised {
		t.Error("the cgroup counts as raised by the resize before")
	}
	s.ResizeActed(podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, Generation: 3}, time.Time{})
	s.ResizeActed(podstate.Action{Key: podstate.Key{Kind: podstate.FitCgroup}, Generation: 2}, time.Time{})
	if !r.Raised || !r.Unfinished {
		t.Errorf("the end of the one before: %+v", r)
	}
	change := podstate.Action{Key: podstate.Key{Kind: podstate.ResizeContainer, Object: "c"}, ID: "c"}
	for i, step := range []struct{ tried, most int64 }{{100, 100}, {50, 100}, {200, 200}, {0, 0}, {300, 0}} {
		change.Kernel.Memory = step.tried
		s.ResizeFailed(change)
		if most, unsure := r.Unsure["c"]; !unsure || most != step.most {
			t.Errorf("failure %d: unsure %v, with a limit of %d at most; want %d", i, unsure, most, step.most)
		}
	}
	s.ResizeActed(change, time.Time{})
	if _, unsure := r.Unsure["c"]; unsure {
		t.Error("after a change that went well it is not known what the container has")
	}
	s.ResizeActed(podstate.Action{Key: podstate.Key{Kind: podstate.FitCgroup}, Generation: 3}, time.Time{})
	if r.Unfinished || r.Raised {
		t.Errorf("at the end: %+v", r)
	}
}

func TestWhatAContainerHasIsNotKnownAfterAChangeThatFailed(t *testing.T) {
	s := NewState("u")
	a := podstate.Action{Key: podstate.Key{Kind: podstate.ResizeContainer, Object: "c1"}, ID: "c1", Kernel: resources.Kernel{Memory: 5}}
	for failure, want := range map[*Failure]bool{{Reason: "ResizeError"}: true, nil: false} {
		s.Launch(a)
		s.Ended(Outcome{Action: a, Failure: failure})
		if most, unsure := s.Resize.Unsure["c1"]; unsure != want || unsure && most != 5 {
			t.Errorf("failure %v: unsure %v, %d", failure, unsure, most)
		}
	}
}
