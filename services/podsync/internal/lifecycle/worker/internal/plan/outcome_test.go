package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestWhatFailedOfAContainerIsForgottenWithIt(t *testing.T) {
	s := NewState("u")
	o := podstate.Observed{
		Sandboxes: []podstate.Sandbox{{ID: "s"}}, Containers: []podstate.Container{{ID: "c"}},
	}
	stay := []podstate.Key{{Kind: podstate.KillContainer, Object: "c"}, {Kind: podstate.StopSandbox, Object: "s"}, {Kind: podstate.PullImage, Object: "app"}, {Kind: podstate.SetupVolumes}}
	for _, k := range append(stay, podstate.Key{Kind: podstate.KillContainer, Object: "gone"}, podstate.Key{Kind: podstate.RemoveSandbox, Object: "gone"}) {
		s.Failures[k] = Failure{Count: 1}
	}
	s.Observe(o)
	if len(s.Failures) != len(stay) {
		t.Errorf("left are %v, want %v", s.Failures, stay)
	}
	for _, k := range stay {
		if s.Failures[k].Count != 1 {
			t.Errorf("%v was forgotten", k)
		}
	}
}

// A disagreement with the runtime about what an action has done must not keep a
// processor busy.
func TestWhatIsDoneManyTimesWithinASecondWaits(t *testing.T) {
	s := NewState("u")
	s.Now = start
	a := podstate.Action{Key: podstate.Key{Kind: podstate.StopSandbox, Object: "s"}, ID: "s"}
	for range mostRepeats {
		if _, begins := s.Launch(a); !begins {
			t.Fatal("it does not begin")
		}
		s.Ended(Outcome{Action: a})
	}
	noted, begins := s.Launch(a)
	if f := s.Failures[a.Key]; begins || !noted.News || f.Reason != "Repeated" || f.Count != 1 || len(s.InFlight) != 0 {
		t.Errorf("begins %v, noted %+v, failures %+v", begins, noted, s.Failures)
	}
	s.Now = start.Add(1001 * time.Millisecond)
	if _, begins := s.Launch(a); !begins {
		t.Error("a second later it does not begin")
	}
}

func TestAPullThatFailedSaysNothingOfAnotherImage(t *testing.T) {
	pod := testPod("Always", "a")
	for name, image := range map[string]string{"the same image": pod.Spec.Containers[0].Image, "another": "other"} {
		s := NewState("u")
		s.Want(pod)
		a := podstate.Action{Key: podstate.Key{Kind: podstate.PullImage, Object: "a"}, Container: "a", Image: image}
		noted := s.Ended(Outcome{Action: a, Failure: &Failure{Reason: "ErrImagePull", Message: "not found"}})
		if _, failed := s.Failures[a.Key]; failed != (name == "the same image") || failed != (noted.Failure.Count == 1) {
			t.Errorf("%s: %+v, noted %+v", name, s.Failures, noted)
		}
	}
}

// A start that failed may have failed because an image was removed meanwhile.
func TestAfterAStartThatFailedItsImagesAreLookedForAnew(t *testing.T) {
	s := NewState("u")
	s.Want(withVolumes("v"))
	s.Images = map[string]Image{"a": {Ref: "x"}, "b": {Ref: "y"}, podstate.VolumeKey("v"): {Ref: "z"}}
	a := podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "a"}, Container: "a"}
	s.Ended(Outcome{Action: a, Failure: &Failure{Message: "image not found"}, Cancelled: true})
	if len(s.Images) != 3 || len(s.Failures) != 0 {
		t.Errorf("when it was cut short: %+v, failures %+v", s.Images, s.Failures)
	}
	s.Ended(Outcome{Action: a, Failure: &Failure{Message: "image not found"}})
	if len(s.Images) != 1 || s.Images["b"].Ref != "y" || s.Failures[a.Key].Count != 1 {
		t.Errorf("%+v, failures %+v", s.Images, s.Failures)
	}
}

// A sandbox goes down when a start was about to be made in it.
func TestAnImageThatWasFoundInTheSandboxBeforeIsLookedForOnceMoreAfterTheInitContainers(t *testing.T) {
	for first, want := range map[string]map[string]bool{"": {"a": false}, "i": {"i": false, "j": true, "a": true}} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		if first != "" {
			pod = withInit(pod, first, "j")
		}
		s := NewState("u")
		s.Want(pod)
		key := podstate.VolumeKey("v")
		s.Images[key] = Image{Ref: "x"}
		for name := range want {
			s.Images[name] = Image{Ref: "x"}
		}
		s.Ended(Outcome{Action: podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}}})
		for name, early := range want {
			if s.Images[name].Early != early {
				t.Errorf("of %q with %d init containers: %+v", name, len(pod.Spec.InitContainers), s.Images[name])
			}
		}
		if s.Images[key].Early {
			t.Error("a volume's image waits for no init container")
		}
	}
}

// The state's own time is that of the last plan, and a look at an image may take longer
// than what it finds counts: it would be looked for again and again.
func TestAnImageIsAsOldAsTheEndOfItsPull(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	a := podstate.Action{Key: podstate.Key{Kind: podstate.PullImage, Object: "a"}, Container: "a", Image: "img"}
	ended := w.s.Now.Add(time.Hour)
	w.s.Launch(a)
	if w.s.Ended(Outcome{Action: a, At: ended, ImageRef: "sha256:1"}); !w.s.Images["a"].At.Equal(ended) {
		t.Errorf("found at %v, want %v", w.s.Images["a"].At, ended)
	}
}
