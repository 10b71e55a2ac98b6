package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAnOrphanHasTheGracePeriodThatItsContainersWereMadeWith(t *testing.T) {
	for _, tc := range []struct{ annotated, want int64 }{{0, 2}, {30, 30}} {
		s := State{UID: "u", Now: start, Observed: podstate.Observed{Known: true, Containers: []podstate.Container{
			{ID: "c", SandboxID: "s", Name: "c", State: podstate.StateRunning, GraceSeconds: tc.annotated},
		}}}
		out := Plan(s)
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != tc.want {
			t.Errorf("annotated %d: %+v", tc.annotated, out.Actions)
		}
	}
}

func TestWhatTheNodeGivesCountsFromWhenItGaveItAndMakesNothingLonger(t *testing.T) {
	for _, tc := range []struct {
		name string
		own  int64
		// deleted is the period of a deletion at the beginning; below zero for none.
		deleted int64
		// stops are the periods that the node gives, each 10 s after the one before;
		// below zero for none of its own.
		stops       []int64
		left, total int64
	}{
		{"the pod's own", 30, -1, []int64{-1}, 30, 30},
		{"less", 30, -1, []int64{7}, 7, 7},
		{"more than the pod's own", 30, -1, []int64{90}, 30, 30},
		{"none", 30, -1, []int64{0}, 1, 1},
		{"less, then still less", 60, -1, []int64{40, 20}, 20, 20},
		{"less, of which as much is left, then more than that", 60, -1, []int64{15, 14}, 5, 14},
		{"less, then more", 60, -1, []int64{30, 50}, 20, 30},
		{"its own, then less", 60, -1, []int64{-1, 20}, 20, 20},
		{"its own, then nearly all", 60, -1, []int64{-1, 55}, 50, 55},
		{"a deletion, then less", 30, 600, []int64{20}, 20, 20},
		{"a deletion that gives less than the node", 30, 5, []int64{20}, 5, 5},
	} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.Spec.TerminationGracePeriodSeconds = &tc.own
		if tc.deleted >= 0 {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: start}, &tc.deleted
		}
		s := NewState("u")
		s.Pod = pod
		now := start
		for i, seconds := range tc.stops {
			if i > 0 {
				now = now.Add(10 * time.Second)
			}
			stop := podstate.Stop{Reason: "Evicted"}
			if seconds >= 0 {
				stop.GraceSeconds = &seconds
			}
			s.TakeStop(stop, true, now)
			if i == 0 {
				s.Begin(now)
				s.EndSince = now
			}
		}
		s.Begin(now)
		p := planner{s: &s}
		if left, total := p.graceLeft(start); left != tc.left || total != tc.total {
			t.Errorf("%s: %d s of %d are left, want %d of %d", tc.name, left, total, tc.left, tc.total)
		}
	}
}

func TestASecondReasonToEndAPodOnlyHastensIt(t *testing.T) {
	five, nine := int64(5), int64(9)
	s := NewState("u")
	for i, tc := range []struct {
		stop   podstate.Stop
		kept   bool
		sooner bool
		grace  *int64
	}{
		{podstate.Stop{Reason: "Evicted"}, true, false, nil},
		{podstate.Stop{Reason: "Other", GraceSeconds: &nine}, false, true, &nine},
		{podstate.Stop{Reason: "Other", GraceSeconds: &five}, true, true, &five},
		{podstate.Stop{Reason: "Other", GraceSeconds: &nine}, true, false, &five},
		{podstate.Stop{Reason: "Other"}, true, false, &five},
	} {
		if sooner := s.TakeStop(tc.stop, tc.kept, start); sooner != tc.sooner || s.StopUnkept == tc.kept || s.Stop.Reason != "Evicted" || s.Stop.GraceSeconds != tc.grace {
			t.Errorf("%d: sooner %v, unkept %v, %+v", i, sooner, s.StopUnkept, s.Stop)
		}
	}
}

func TestADeletionOfAPodThatIsEndingCountsFromThereAndMakesNothingLonger(t *testing.T) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	never := -1
	for _, tc := range []struct {
		name         string
		end, deleted int // in seconds
		given        int64
		before       []Period
		left         int64
	}{
		{"it gives more than is left", 0, 10, 60, nil, 20},
		{"it gives less", 0, 10, 5, nil, 5},
		{"nothing was ending", never, 10, 60, nil, 60},
		{"the deletion came first", 5, 0, 60, nil, 55},
		{"a second one that gives less, of one that gave more", 0, 10, 50, []Period{{at(5), 60}}, 20},
		{"a second one that gives nearly as much as the first", 0, 10, 14, []Period{{at(5), 15}}, 10},
		{"a second one, the first of which was why it ends", 5, 10, 50, []Period{{at(0), 60}}, 50},
	} {
		pod := testPod(v1.RestartPolicyAlways, "a") // of 30 s
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: start}, &tc.given
		s := NewState("u")
		s.Pod, s.Now, s.DeletionSince, s.Shortened = pod, at(10), at(tc.deleted), tc.before
		if tc.end != never {
			s.EndSince = at(tc.end)
		}
		p := planner{s: &s}
		if left, _ := p.graceLeft(start); left != tc.left {
			t.Errorf("%s: %d s are left, want %d", tc.name, left, tc.left)
		}
	}
}

func TestAStopThatFailedGetsWhatItWasGivenAtFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		failed bool
		begun  int64
		want   int64
	}{
		"it has not failed":            {false, 0, 7},
		"it has":                       {true, 0, 30},
		"it has, and had less":         {true, 20, 20},
		"it has, and had hardly a bit": {true, 1, shortestGrace},
		"it was begun":                 {false, 20, 7},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"), "a running")
		if tc.failed {
			s.Failures[podstate.Key{Kind: podstate.KillContainer, Object: "c0"}] = Failure{Count: 1}
		}
		if tc.begun > 0 {
			s.Stops["c0"] = ContainerStop{GraceSeconds: tc.begun}
		}
		p := newPlanner(&s)
		if got := p.signalled(&s.Observed.Containers[0], grace{whole: 30, left: 7}); got != tc.want {
			t.Errorf("%s: %d s, want %d", name, got, tc.want)
		}
	}
}
