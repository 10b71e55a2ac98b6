package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestHowManyDeadContainersStayIsTheNodesToSay(t *testing.T) {
	for _, tc := range []struct{ keep, want int }{{0, 1}, {1, 1}, {3, 3}, {10, 4}, {-1, 4}} {
		t.Run(fmt.Sprint(tc.keep), func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.s.Node.DeadContainers = tc.keep
			w.exits["a"] = []int32{1, 1, 1, 1}
			w.settle(time.Hour)
			dead := 0
			for _, c := range w.s.Observed.Containers {
				if c.State == podstate.StateExited {
					dead++
				}
			}
			if dead != tc.want {
				t.Errorf("%d dead containers are left beside the running one, want %d", dead, tc.want)
			}
		})
	}
}

func TestADeadContainerStaysUntilItIsOldEnough(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Node.DeadContainerTTL = 10 * time.Minute
	w.exits["a"] = []int32{1, 1, 1}
	w.settle(5 * time.Minute)
	if n := len(w.s.Observed.Containers); n != 4 {
		t.Errorf("%d containers after five minutes, want all four", n)
	}
	w.settle(10 * time.Minute)
	if n := len(w.s.Observed.Containers); n != 2 {
		t.Errorf("%d containers when the dead ones are old, want the running one and the last dead", n)
	}
}

func TestADeadContainerTooManyOnTheNodeGoesUnlessADecisionNeedsIt(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Node.DeadContainers = -1
	w.exits["a"] = []int32{1, 2, 3}
	w.settle(time.Hour)
	if n := len(w.s.Observed.Containers); n != 4 {
		t.Fatalf("%d containers, want the running one and three dead", n)
	}
	before := w.s.Reported.ContainerStatuses[0].LastTerminationState
	w.s.Excess = map[string]bool{}
	for _, c := range w.s.Observed.Containers {
		w.s.Excess[c.ID] = true
	}
	w.settle(time.Hour)
	if n := len(w.s.Observed.Containers); n != 1 || w.s.Observed.Containers[0].State != podstate.StateRunning {
		t.Errorf("%d containers are left, want the running one", n)
	}
	st := w.s.Reported.ContainerStatuses[0]
	if now := st.LastTerminationState.Terminated; now == nil || now.ExitCode != 3 || now.ContainerID != before.Terminated.ContainerID || st.RestartCount != 3 {
		t.Errorf("its last state is %+v after %d restarts, was %+v", st.LastTerminationState, st.RestartCount, before)
	}
}

// The container may have run and ended with its sandbox before anybody has seen
// it: its record says how long the next start waits.
func TestASandboxIsNotRemovedWhileAContainerIsBeingStartedInIt(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	down := w.s.Observed.Sandboxes[0]
	down.ID, down.Ready, down.Attempt = "down", false, 0
	w.s.StoppedSandboxes["down"] = true
	w.s.Observed.Sandboxes[0].Attempt = 1
	w.s.Observed.Sandboxes = append(w.s.Observed.Sandboxes, down)
	removes := func() bool {
		return slices.ContainsFunc(Plan(w.s).Actions, func(a podstate.Action) bool { return a.Kind == podstate.RemoveSandbox && a.ID == "down" })
	}
	start := podstate.Key{Kind: podstate.StartContainer, Object: "a"}
	w.s.InFlight = map[podstate.Key]podstate.Action{start: {Key: start, Container: "a", SandboxID: "down"}}
	if removes() {
		t.Error("the sandbox is removed under the start")
	}
	w.s.InFlight = nil
	if !removes() {
		t.Error("the sandbox stays when the start is over")
	}
}

func TestANodeThatNeedsRoomKeepsOnlyWhatADecisionNeeds(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Node.DeadContainers, w.s.Node.DeadContainerTTL = -1, 24*time.Hour
	w.exits["a"] = []int32{1, 2, 3}
	w.settle(time.Hour)
	w.s.Reclaim = true
	w.settle(time.Minute)
	if n := len(w.s.Observed.Containers); n != 2 || w.newest("a").State != podstate.StateRunning {
		t.Errorf("%d containers are left, want the running one and the last dead: %+v", n, w.s.Observed.Containers)
	}
	if got := w.out.Status.ContainerStatuses[0]; got.RestartCount != 3 || got.LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("status %+v", got)
	}
}

func TestAPodThatHasEndedKeepsNothingWhenTheNodeNeedsRoomAndItsEndIsKept(t *testing.T) {
	for _, tc := range []struct {
		name    string
		static  bool
		known   bool
		reclaim bool
		want    int
	}{
		{"nobody needs room", false, true, false, 1},
		{"it is known", false, true, true, 0},
		{"the apiserver does not know", false, false, true, 0},
		{"a static pod", true, true, true, 1},
	} {
		w := newWorld(testPod(v1.RestartPolicyNever, "a"))
		w.exits["a"] = []int32{4}
		w.s.Static = tc.static
		w.settle(time.Hour)
		before := w.out.Status
		if tc.known {
			w.s.Pod = w.s.Pod.DeepCopy()
			w.s.Pod.Status = *before.DeepCopy()
		}
		w.s.Reclaim = tc.reclaim
		w.settle(time.Hour)
		if c, s := len(w.s.Observed.Containers), len(w.s.Observed.Sandboxes); c != tc.want || s != tc.want {
			t.Errorf("%s: %d containers and %d sandboxes are left, want %d", tc.name, c, s, tc.want)
		}
		if got := w.out.Status; !equality.Semantic.DeepEqual(got.ContainerStatuses, before.ContainerStatuses) || got.Phase != v1.PodFailed || w.count("start container a") != 1 {
			t.Errorf("%s: status %+v, before %+v", tc.name, got, before)
		}
		if kept := w.s.StatusKept; kept != (tc.want == 0 && !tc.known) {
			t.Errorf("%s: its status is kept here: %t", tc.name, kept)
		}
		// The next podsync knows what the apiserver does, or what is kept, and nothing else.
		if tc.want == 0 {
			if tc.known {
				w.s.Reported = w.s.Pod.Status
			}
			w.s.EndSince, w.s.Cleaned, w.s.Volumes, w.s.Reclaim = time.Time{}, Cleaned{}, Volumes{}, false
			if w.settle(time.Hour); w.count("start container a") != 1 || w.out.Status.Phase != v1.PodFailed || w.out.Status.ContainerStatuses[0].State.Terminated.ExitCode != 4 {
				t.Errorf("%s: then %+v", tc.name, w.out.Status)
			}
		}
	}
}

func TestWhatIsNoGarbageStays(t *testing.T) {
	container := func(id, sandbox, name string, state podstate.ContainerState) podstate.Container {
		return podstate.Container{ID: id, SandboxID: sandbox, Name: name, State: state, CreatedAt: start}
	}
	s := scene(testPod(v1.RestartPolicyAlways, "a"))
	s.Observed.Sandboxes = append(s.Observed.Sandboxes, podstate.Sandbox{ID: "asked"}, podstate.Sandbox{ID: "up", Ready: true}, podstate.Sandbox{ID: "down"})
	s.StoppedSandboxes["up"], s.StoppedSandboxes["down"] = true, true
	s.Observed.Containers = []podstate.Container{
		container("now", "s", "a", podstate.StateRunning), container("dead", "s", "a", podstate.StateExited), container("older", "s", "a", podstate.StateExited),
		container("runs", "up", "a", podstate.StateRunning), container("made", "s", "a", podstate.StateCreated),
		container("stranger", "s", "x", podstate.StateExited), container("strange", "s", "x", podstate.StateRunning),
	}
	p := newPlanner(&s)
	p.collectGarbage()
	var removed []string
	for _, a := range p.out.Actions {
		removed = append(removed, a.ID)
	}
	if want := []string{"older", "stranger", "down"}; !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
}

// A container may be in use by its stop still, and the sandbox by the container.
func TestOfAPodThatHasEndedContainersGoBeforeTheirSandbox(t *testing.T) {
	s := scene(testPod(v1.RestartPolicyNever, "a", "b"), "a 0", "b 0")
	key := podstate.Key{Kind: podstate.KillContainer, Object: s.Observed.Containers[1].ID}
	s.InFlight[key] = podstate.Action{Key: key}
	removes := func(down bool) (ids []string) {
		p := newPlanner(&s)
		p.removeDead(down)
		for _, a := range p.out.Actions {
			ids = append(ids, a.ID)
		}
		return ids
	}
	if got := removes(true); !slices.Equal(got, []string{"c0"}) {
		t.Errorf("removed %q", got)
	}
	s.Observed.Containers = nil
	if got := removes(false); len(got) != 0 {
		t.Errorf("while the sandbox is not down: %q", got)
	}
	if got := removes(true); !slices.Equal(got, []string{"s"}) {
		t.Errorf("then %q", got)
	}
}
