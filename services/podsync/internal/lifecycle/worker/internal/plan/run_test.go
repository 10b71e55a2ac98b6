package plan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAContainerWaitsForThePostStartHookOfThoseBeforeIt(t *testing.T) {
	crashed := func(w *world, name string) {
		w.end(w.newest(name), 1)
		w.s.Images[name] = Image{Spec: "img", Ref: "sha256:1", RestartCount: 1}
	}
	starting := func(w *world, name string) {
		c := w.newest(name)
		c.Hook = podstate.HookRunning
		key := podstate.Key{Kind: podstate.StartContainer, Object: name}
		w.s.InFlight[key] = podstate.Action{Key: key, Container: name, Attempt: c.RestartCount, SandboxID: c.SandboxID}
	}
	onItsWay := func(w *world, name string) {
		key := podstate.Key{Kind: podstate.StartContainer, Object: name}
		w.s.InFlight[key] = podstate.Action{Key: key, Container: name, Attempt: 1, SandboxID: w.newest(name).SandboxID}
	}
	for _, tc := range []struct {
		name   string
		begin  func(w *world)
		starts []string
	}{
		{"the first begins", func(*world) {}, []string{"a"}},
		{"its hook runs", func(w *world) { starting(w, "a") }, nil},
		{"the hook of one after it runs", func(w *world) { crashed(w, "a"); starting(w, "b") }, []string{"a"}},
		{"one after it is on its way, and could start while this one's hook runs", func(w *world) { crashed(w, "a"); crashed(w, "b"); onItsWay(w, "b") }, nil},
		{"one after it was made and does not run yet", func(w *world) {
			crashed(w, "a")
			starting(w, "b")
			w.newest("b").State = podstate.StateCreated
		}, nil},
		{"the hook of one before it runs, and it has crashed", func(w *world) { crashed(w, "c"); starting(w, "b") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b", "c"))
			for i := range w.s.Pod.Spec.Containers {
				w.s.Pod.Spec.Containers[i].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
			}
			first := tc.name == "the first begins"
			for !first && w.newest("c") == nil {
				w.step()
				if tc.name == "its hook runs" && w.newest("a") != nil {
					break
				}
			}
			for first && w.s.Images["c"].Ref == "" {
				w.step()
			}
			tc.begin(w)
			var starts []string
			for _, a := range Plan(w.s).Actions {
				if a.Kind == podstate.StartContainer {
					starts = append(starts, a.Container)
				}
			}
			if without := w.s.Pod.DeepCopy(); strings.HasPrefix(tc.name, "one after it") {
				without.Spec.Containers[0].Lifecycle = nil
				s := w.s
				s.Pod = without
				if n := kinds(Plan(s).Actions)[podstate.StartContainer]; n != 1 {
					t.Errorf("without a hook %d containers start, want 1", n)
				}
			}
			if len(starts) != len(tc.starts) || len(starts) == 1 && starts[0] != tc.starts[0] {
				t.Errorf("starts %v, want %v", starts, tc.starts)
			}
			clear(w.s.InFlight)
			for i := range w.s.Observed.Containers {
				w.s.Observed.Containers[i].Hook = podstate.HookDone
			}
			if w.settle(time.Minute); w.out.Status.Phase != v1.PodRunning || w.newest("c") == nil {
				t.Errorf("afterwards: phase %s, log %v", w.out.Status.Phase, w.log)
			}
		})
	}
}

// Whoever debugs a pod that does not come up wants to look at just that.
func TestADebugContainerWaitsForNoOtherContainer(t *testing.T) {
	for name, wait := range map[string]func(w *world){
		"an image that is being pulled": func(w *world) {
			key := podstate.Key{Kind: podstate.PullImage, Object: "a"}
			w.s.InFlight[key] = podstate.Action{Key: key, Container: "a", Image: "img"}
		},
		"a postStart hook that does not return": func(w *world) {
			c := w.newest("a")
			c.Hook = podstate.HookRunning
			key := podstate.Key{Kind: podstate.StartContainer, Object: "a"}
			w.s.InFlight[key] = podstate.Action{Key: key, Container: "a", SandboxID: c.SandboxID}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b"))
			for w.s.Observed.Sandboxes == nil || strings.Contains(name, "hook") && w.newest("a") == nil {
				w.step()
			}
			w.s.Images = map[string]Image{}
			w.s.Observed.Containers = w.s.Observed.Containers[:min(1, len(w.s.Observed.Containers))]
			wait(w)
			w.s.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "img"}}}
			for range 5 {
				w.step()
			}
			if w.newest("debug") == nil {
				t.Errorf("it was not started; done: %q", w.log)
			}
		})
	}
}

func TestNoContainerWaitsForADebugContainer(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage && a.Container == "debug" {
			return &Failure{Reason: "ErrImagePull", Message: "not found"}
		}
		return nil
	}
	w.s.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "absent"}}}
	w.settle(time.Minute)
	w.end(w.newest("a"), 1)
	if w.settle(time.Minute); w.newest("a").RestartCount != 1 {
		t.Errorf("it is %+v; done: %q", w.newest("a"), w.log)
	}
}

// An agent that is killed between the two calls leaves one behind.
func TestWhatWasMadeAndNeverStartedStarts(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyNever, "a"))
	w.settle(time.Minute)
	w.s.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "img"}}}
	made := podstate.Container{ID: "made", Name: "debug", SandboxID: w.newest("a").SandboxID, State: podstate.StateCreated}
	w.s.Observed.Containers = append(w.s.Observed.Containers, made)
	if w.settle(time.Minute); w.count("start container debug") != 1 {
		t.Errorf("a debug container: %q", w.log)
	}

	w = newWorld(testPod(v1.RestartPolicyNever, "a"))
	for w.s.Observed.Sandboxes == nil {
		w.step()
	}
	w.s.Observed.Sandboxes[0].Ready = false
	w.s.Observed.Containers = []podstate.Container{{ID: "made", Name: "a", SandboxID: w.s.Observed.Sandboxes[0].ID, State: podstate.StateCreated}}
	if w.settle(time.Minute); w.count("start container a") != 1 || w.out.Status.Phase != v1.PodRunning {
		t.Errorf("one whose sandbox has died: %s, %q", w.out.Status.Phase, w.log)
	}
}

func TestAPullEndsWhenAnotherImageIsAskedFor(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	for w.s.Observed.Sandboxes == nil {
		w.step()
	}
	w.s.Images = map[string]Image{}
	key := podstate.Key{Kind: podstate.PullImage, Object: "a"}
	w.s.InFlight[key] = podstate.Action{Key: key, Container: "a", Image: "img"}
	if out := Plan(w.s); len(out.Cancel) != 0 {
		t.Errorf("cut short: %v", out.Cancel)
	}
	w.s.Pod.Spec.Containers[0].Image = "mended"
	if out := Plan(w.s); len(out.Cancel) != 1 || out.Cancel[0] != key {
		t.Fatalf("cut short: %v", out.Cancel)
	}
	w.s.Ended(Outcome{Action: w.s.InFlight[key], Cancelled: true, Failure: &Failure{Message: "cut short"}})
	w.step()
	if got := w.s.Images["a"]; got.Spec != "mended" {
		t.Errorf("the image is %+v; done: %q", got, w.log)
	}
}
