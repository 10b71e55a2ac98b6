package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// untilInit is a pod whose regular container's image is not there before its init
// container, which fails a few times, has ended well.
func untilInit(word string) *world {
	w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a", "b"), "i"))
	w.exits["i"] = []int32{1, 1, 1, 1, 1, 1, 0}
	w.runs = 3 * time.Second
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage && a.Container == "a" && !w.initHasEnded() {
			return &Failure{Reason: word, Message: "connection refused"}
		}
		return nil
	}
	return w
}

func (w *world) initHasEnded() bool {
	c := w.newest("i")
	return c != nil && c.State == podstate.StateExited && c.ExitCode == 0
}

// Source: the kubelet looks for an image for the first time when its container starts.
func TestAnImageThatAnInitContainerBringsHoldsNoStartUp(t *testing.T) {
	for _, word := range []string{"ErrImagePull", "ErrImageNeverPull"} {
		w := untilInit(word)
		w.settle(time.Hour)
		i, a, b := w.newest("i"), w.newest("a"), w.newest("b")
		if a == nil || b == nil {
			t.Fatalf("%s: not started: %q", word, w.log)
		}
		if late := a.StartedAt.Sub(i.FinishedAt); late > time.Second {
			t.Errorf("%s: the container starts %v after the init container has ended", word, late)
		}
		if started := slices.DeleteFunc(slices.Clone(w.log), func(l string) bool { return l != "start container a" && l != "start container b" }); !slices.Equal(started, []string{"start container a", "start container b"}) {
			t.Errorf("%s: %q, want the order of the spec", word, started)
		}
	}
}

func TestAnImageThatCouldNotBeHadBeforeItsTimeIsTriedOnceMore(t *testing.T) {
	w := untilInit("ErrImagePull")
	early := 0
	var due []time.Time
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind != podstate.PullImage || a.Container != "a" {
			return nil
		}
		if st := statusOf(w.out.Status, "a").State.Waiting; len(due) == 0 && (st == nil || st.Reason != "PodInitializing") {
			t.Errorf("before its time the container is %+v", st)
		}
		if a.Early {
			early++
		} else {
			due = append(due, w.s.Now)
		}
		return &Failure{Reason: "ErrImagePull", Message: "connection refused"}
	}
	w.settle(time.Hour)
	if early < 2 || len(due) < 10 || len(due) > 17 {
		t.Fatalf("%d early tries and %d others in an hour", early, len(due))
	}
	if i := w.newest("i"); !due[0].Equal(i.FinishedAt) || due[1].Sub(due[0]) != firstBackoff {
		t.Errorf("tries at %v, %v …, want one when the init container ends, at %v, and then the usual back-off", due[0], due[1], i.FinishedAt)
	}
	if st := statusOf(w.out.Status, "a").State.Waiting; st == nil || st.Reason != "ImagePullBackOff" {
		t.Errorf("then the container is %+v", st)
	}
	// The pod initializes anew in the middle of the back-off.
	tries := early + len(due)
	w.s.Observed.Sandboxes[0].Ready = false
	w.exits["i"] = []int32{0}
	if w.settle(20 * time.Second); early+len(due) > tries+1 || w.newest("i").ExitCode != 0 {
		t.Errorf("%d tries more", early+len(due)-tries)
	}
}

// An init container may bring another image of the name, however short it runs, or take
// an hour in which the registry gets one: with pull policy Always the newest runs.
func TestAnImageThatWasThereBeforeItsTimeIsLookedForOnceMoreWhenTheContainerIsDue(t *testing.T) {
	for _, runs := range []time.Duration{time.Second, time.Hour} {
		w := newWorld(withInit(testPod(v1.RestartPolicyAlways, "a"), "i"))
		w.exits["i"], w.runs = []int32{0}, runs
		var early, due []time.Time
		w.fail = func(a podstate.Action) *Failure {
			switch {
			case a.Kind != podstate.PullImage || a.Container != "a":
			case a.Early:
				early = append(early, w.s.Now)
			default:
				due = append(due, w.s.Now)
			}
			return nil
		}
		w.settle(2 * time.Hour)
		i, a := w.newest("i"), w.newest("a")
		if a == nil || len(early) != 1 || len(due) != 1 || due[0].Before(i.FinishedAt) || a.StartedAt.Before(due[0]) {
			t.Errorf("looked for at %v before its time and at %v when due; the init container ended at %v, the container is %+v", early, due, i.FinishedAt, a)
		}
	}
}

// Source: https://kubernetes.io/docs/concepts/containers/images/#image-pull-policy, "every
// time the kubelet launches a container".
func TestAnImageIsLookedForAtEachStart(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.exits["a"] = []int32{1, 1, 1} // all within the minute for which an image counts
	looked := map[int]int{}
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage {
			looked[a.Attempt]++
		}
		return nil
	}
	w.settle(time.Hour)
	if a := w.newest("a"); a.RestartCount != 3 || len(looked) != 4 || looked[1] != 1 || looked[2] != 1 {
		t.Errorf("looked for so often for each start: %v; the container is %+v", looked, a)
	}
}

func TestAnImageThatIsReplacedBeforeItsContainerStartsDoesNotRun(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	found := ""
	w.volumes = func(podstate.Action) map[string]Failure {
		if w.s.Now.Sub(start) < 10*time.Second {
			return map[string]Failure{"": {Reason: "FailedMount", Message: "not found", At: w.s.Now}}
		}
		return nil
	}
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage {
			found = a.Image
		}
		return nil
	}
	w.settle(5 * time.Second)
	w.s.Pod = w.s.Pod.DeepCopy()
	w.s.Pod.Spec.Containers[0].Image = "another"
	w.settle(time.Hour)
	if w.newest("a") == nil || found != "another" {
		t.Errorf("the image that was found last is %q", found)
	}
}

// Whoever makes what a volume was missing may have pushed another image before.
func TestAnImageThatWasFoundLongBeforeTheStartIsLookedForOnceMore(t *testing.T) {
	for wait, pulls := range map[time.Duration]int{10 * time.Second: 1, time.Hour: 2} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		ready := w.s.Now.Add(wait)
		w.volumes = func(podstate.Action) map[string]Failure {
			if w.s.Now.Before(ready) {
				return map[string]Failure{"": {Reason: "FailedMount", Message: "not found", At: w.s.Now}}
			}
			return nil
		}
		var looked []time.Time
		w.fail = func(a podstate.Action) *Failure {
			if a.Kind == podstate.PullImage {
				looked = append(looked, w.s.Now)
			}
			return nil
		}
		w.settle(2 * time.Hour)
		a := w.newest("a")
		if a == nil || len(looked) != pulls || a.StartedAt.Sub(looked[len(looked)-1]) > imageCounts {
			t.Errorf("volumes come after %v: looked for at %v, the container is %+v", wait, looked, a)
		}
	}
}

// A registry that is away by then holds up that container alone.
func TestNothingStartsWithAnImageThatIsLookedForOnceMore(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b"))
	ready, back := w.s.Now.Add(time.Hour), w.s.Now.Add(2*time.Hour)
	w.volumes = func(podstate.Action) map[string]Failure {
		if w.s.Now.Before(ready) {
			return map[string]Failure{"": {Reason: "FailedMount", Message: "not found", At: w.s.Now}}
		}
		return nil
	}
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage && a.Container == "a" && !w.s.Now.Before(ready) && w.s.Now.Before(back) {
			return &Failure{Reason: "ErrImagePull", Message: "connection refused"}
		}
		return nil
	}
	w.settle(3 * time.Hour)
	a, b := w.newest("a"), w.newest("b")
	if a == nil || a.StartedAt.Before(back) {
		t.Errorf("the container whose image cannot be had until %v is %+v", back, a)
	}
	if b == nil || b.StartedAt.Sub(ready) > 5*time.Minute {
		t.Errorf("the other one is %+v; volumes are ready at %v", b, ready)
	}
}
