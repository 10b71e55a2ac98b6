package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
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

func TestWhatAPreviousRunAllocatedIsTakenUpAsFarAsItsStatusSaysThatItCame(t *testing.T) {
	small, big := sized(amounts("cpu", "1"), v1.NotRequired, "a"), sized(amounts("cpu", "2"), v1.NotRequired, "a")
	under := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: 3}
	for name, tc := range map[string]struct {
		former     Former
		observed   int64
		conditions []v1.PodCondition
		unfinished bool
		generation int64
		kept       *v1.Pod
	}{
		"nothing is known of it":                      {former: Former{Had: resize.Of(big)}, kept: big},
		"it is in effect":                             {former: Former{Had: resize.Of(small), Stored: true, Generation: 3, At: start}, observed: 3, generation: 3, kept: small},
		"it was under way":                            {former: Former{Had: resize.Of(small), Stored: true, Generation: 3, At: start}, observed: 3, conditions: []v1.PodCondition{under}, unfinished: true, generation: 3, kept: small},
		"it was not told of":                          {former: Former{Had: resize.Of(small), Stored: true, Generation: 3, At: start}, observed: 2, unfinished: true, generation: 3, kept: small},
		"what it was admitted with":                   {former: Former{Had: resize.Of(big), Stored: true, At: start}, observed: 2, kept: big},
		"a kubelet's, of before":                      {former: Former{Had: resize.Of(big), Stored: true}, observed: 2, unfinished: true, kept: big},
		"a kubelet's, and what runs is that":          {former: Former{Had: resize.Of(small), Stored: true}, observed: 2, kept: small},
		"a kubelet's, which has told of all":          {former: Former{Had: resize.Of(big), Stored: true}, observed: 3, kept: big},
		"a kubelet's, which tells of no generation":   {former: Former{Had: resize.Of(big), Stored: true}, kept: big},
		"lost, and something else runs":               {former: Former{Had: resize.Of(big), Lost: true}, observed: 3, unfinished: true, kept: big},
		"lost, and it runs":                           {former: Former{Had: resize.Of(small), Lost: true}, observed: 3, kept: small},
		"lost, and the sandbox was made for the same": {former: Former{Had: resize.Of(small), Lost: true, Made: ptr(resize.Of(small))}, observed: 3, kept: small},
		"lost, and the sandbox was made for another":  {former: Former{Had: resize.Of(small), Lost: true, Made: ptr(resize.Of(big))}, observed: 3, unfinished: true, kept: big},
		"lost, and the sandbox's runs":                {former: Former{Had: resize.Of(big), Lost: true, Made: ptr(resize.Of(small))}, observed: 3, unfinished: true, kept: small},
	} {
		s := scene(small, "a running")
		s.Observed.Containers[0].Made = small.Spec.Containers[0].Resources.DeepCopy()
		s.Desired = small.DeepCopy()
		s.Desired.Generation, s.Reported.ObservedGeneration, s.Reported.Conditions = 3, tc.observed, tc.conditions
		s.Resume(tc.former)
		r := s.Resize
		if r.Unfinished != tc.unfinished || r.Stored != tc.former.Stored || r.Generation != tc.generation || r.At.IsZero() != (tc.generation == 0) {
			t.Errorf("%s: %+v", name, r)
		}
		if !r.Kept.Equal(resize.Of(tc.kept)) || !resize.Of(s.Pod).Equal(resize.Of(tc.kept)) {
			t.Errorf("%s: it has %+v", name, r.Kept)
		}
	}
}

func TestAResizeOnWhichNothingWasDecidedYetIsShownAsItWasTold(t *testing.T) {
	told := v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible, Message: "m", ObservedGeneration: 3}
	other, over := told, told
	other.ObservedGeneration, over.Status = 2, v1.ConditionFalse
	for name, tc := range map[string]struct {
		told []v1.PodCondition
		want podstate.ResizePending
	}{
		"it was told":      {[]v1.PodCondition{told}, podstate.ResizePending{Reason: v1.PodReasonInfeasible, Message: "m", Generation: 3}},
		"another was told": {[]v1.PodCondition{other}, podstate.ResizePending{Reason: v1.PodReasonDeferred, Message: MessageOpen, Generation: 3}},
		"that it is over":  {[]v1.PodCondition{over}, podstate.ResizePending{Reason: v1.PodReasonDeferred, Message: MessageOpen, Generation: 3}},
		"nothing was":      {nil, podstate.ResizePending{Reason: v1.PodReasonDeferred, Message: MessageOpen, Generation: 3}},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"))
		s.Desired = s.Pod.DeepCopy()
		s.Desired.Generation, s.Reported.Conditions = 3, tc.told
		if got := s.OpenResize(); *got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestWhatWasDecidedOfAPodsResourcesIsKeptWhereNothingElseSaysIt(t *testing.T) {
	small, big := resize.Of(sized(amounts("cpu", "1"), v1.NotRequired, "a")), resize.Of(sized(amounts("cpu", "2"), v1.NotRequired, "a"))
	waits := &podstate.ResizePending{Reason: v1.PodReasonDeferred}
	for name, tc := range map[string]struct {
		allocated    resize.Allocation
		pending      *podstate.ResizePending
		set          func(s *State)
		next, unkept bool
		first        bool // nobody is told of the pod's admission before that is kept
	}{
		"as it is, and the sandbox says so":   {allocated: small},
		"another":                             {allocated: big, next: true},
		"another, while a third one waits":    {allocated: big, pending: waits, next: true},
		"it waits":                            {allocated: small, pending: waits, unkept: true},
		"it waits, and is kept":               {allocated: small, pending: waits, set: func(s *State) { s.Resize.Stored = true }},
		"there is no sandbox":                 {allocated: small, set: func(s *State) { s.Observed.Sandboxes = nil }, unkept: true, first: true},
		"there is none, of an earlier run's":  {allocated: small, set: func(s *State) { s.Observed.Sandboxes, s.Begun = nil, true }, unkept: true},
		"there is none, and it is kept":       {allocated: small, set: func(s *State) { s.Observed.Sandboxes, s.Resize.Stored = nil, true }},
		"there is none, of a static pod":      {allocated: small, set: func(s *State) { s.Observed.Sandboxes, s.Static = nil, true }},
		"there is none, and it asks for none": {set: func(s *State) { s.Observed.Sandboxes, s.Resize.Kept = nil, &resize.Allocation{} }},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"))
		s.Resize.Kept = &small
		if tc.set != nil {
			tc.set(&s)
		}
		s.Granted(tc.allocated, 5, tc.pending, start)
		r := s.Resize
		if (r.Next != nil) != tc.next || r.Next != nil && (!r.Next.Equal(tc.allocated) || r.NextGeneration != 5) || (r.Unkept != nil) != tc.unkept || r.Unkept != nil && r.Unkept != r.Kept || r.Pending != tc.pending {
			t.Errorf("%s: %+v", name, r)
		}
		if s.KeepsFirst() {
			t.Errorf("%s: nothing is being kept, and it is waited for", name)
		}
		s.InFlight[podstate.Key{Kind: podstate.KeepAllocation}] = podstate.Action{}
		if got := s.KeepsFirst(); got != tc.first {
			t.Errorf("%s: waited for: %v", name, got)
		}
	}
}

func TestAResizeThatWaitsIsDecidedOnAgainInAWhile(t *testing.T) {
	s := scene(testPod(v1.RestartPolicyAlways, "a"))
	s.Resize.Kept = &resize.Allocation{}
	waits := &podstate.ResizePending{Reason: v1.PodReasonDeferred}
	for i, step := range []struct {
		after   time.Duration
		pending *podstate.ResizePending
		due     bool // before that
		at      time.Duration
	}{
		{0, nil, false, 0},
		{0, waits, false, resizeAgain},
		{time.Minute, waits, false, resizeAgain}, // somebody else has had it decided on
		{resizeAgain, waits, true, 2 * resizeAgain},
		{resizeAgain + time.Minute, nil, false, 0},
	} {
		now := start.Add(step.after)
		if due := s.Resize.Due(now); due != step.due {
			t.Errorf("step %d: due %v", i, due)
		}
		s.Granted(resize.Allocation{}, 0, step.pending, now)
		if at := s.Resize.AskAt; at.IsZero() != (step.at == 0) || step.at > 0 && !at.Equal(start.Add(step.at)) {
			t.Errorf("step %d: asked again at %v", i, at)
		}
	}
}

func TestAnotherSpecLetsWhatFailedBeTriedAnew(t *testing.T) {
	big := sized(amounts("cpu", "2"), v1.NotRequired, "a")
	pull := podstate.Key{Kind: podstate.PullImage, Object: "a"}
	for name, tc := range map[string]struct {
		change func(p *v1.Pod)
		want   bool
	}{
		"a label":  {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		"an image": {func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" }, true},
	} {
		s := scene(sized(amounts("cpu", "1"), v1.NotRequired, "a"))
		if s.Want(s.Pod) {
			t.Error("the first version is another")
		}
		s.Keep(resize.Of(big))
		s.Failures[pull] = Failure{Count: 1}
		now := s.Desired.DeepCopy()
		tc.change(now)
		if changed := s.Want(now); changed != tc.want || len(s.Failures) == 0 != tc.want {
			t.Errorf("%s: changed %v, failures %v", name, changed, s.Failures)
		}
		if s.Desired != now || !resize.Of(s.Pod).Equal(resize.Of(big)) {
			t.Errorf("%s: it has %+v", name, s.Pod.Spec.Containers[0].Resources)
		}
	}
}

func TestWhatIsKeptOfAnAllocationCountsFromThen(t *testing.T) {
	small, big := resize.Of(sized(amounts("cpu", "1"), v1.NotRequired, "a")), resize.Of(sized(amounts("cpu", "2"), v1.NotRequired, "a"))
	failed := []podstate.Kind{podstate.ResizeContainer, podstate.RaiseCgroup, podstate.FitCgroup, podstate.PullImage}
	for name, tc := range map[string]struct {
		kept *resize.Allocation
		next resize.Allocation
		want bool
	}{
		"another":                    {&small, big, true},
		"what it has":                {&small, small, false},
		"what it has, for the first": {nil, small, true},
	} {
		s := scene(sized(amounts("cpu", "1"), v1.NotRequired, "a"))
		s.Desired, s.Resize.Kept, s.Resize.Began, s.Resize.Raised = s.Pod, tc.kept, start, true
		for _, kind := range failed {
			s.Failures[podstate.Key{Kind: kind}] = Failure{Count: 1}
		}
		began, inEffect := s.ResizeActed(podstate.Action{Key: podstate.Key{Kind: podstate.KeepAllocation}, Allocation: &tc.next, Generation: 4}, start.Add(time.Second))
		r := s.Resize
		if !r.Stored || !r.Kept.Equal(tc.next) || r.Unfinished != tc.want || r.Raised == tc.want || r.Ours != tc.want || (r.Generation == 4) != tc.want || inEffect || began.Equal(start) != tc.want {
			t.Errorf("%s: %+v, which began %v", name, r, began)
		}
		if left := map[bool]int{true: 1, false: len(failed)}[tc.want]; len(s.Failures) != left {
			t.Errorf("%s: failures %v", name, s.Failures)
		}
	}
}

func TestAResizedPodIsTheOneThatWasAllocatedLast(t *testing.T) {
	s := scene(sized(amounts("cpu", "1"), v1.NotRequired, "a"))
	s.Desired = s.Pod
	big := resize.Of(sized(amounts("cpu", "2"), v1.NotRequired, "a"))
	if got := s.Resized(); got != s.Pod {
		t.Errorf("nothing was: %+v", got)
	}
	s.Resize.Next = &big
	if got := s.Resized(); !resize.Of(got).Equal(big) {
		t.Errorf("it has %+v", got.Spec.Containers[0].Resources)
	}
	s.ResizeFailed(podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, ID: "c"})
	if len(s.Resize.Unsure) != 0 {
		t.Errorf("a cgroup that could not be raised leaves open what a container has: %v", s.Resize.Unsure)
	}
}
