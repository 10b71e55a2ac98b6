package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// networkFails makes the first stops of a sandbox fail at its network, as a
// runtime does it: the sandbox counts as not ready before.
func networkFails(w *world, times int) (stops *int) {
	stops = new(int)
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind != podstate.StopSandbox {
			return nil
		}
		for i := range w.s.Observed.Sandboxes {
			if sb := &w.s.Observed.Sandboxes[i]; sb.ID == a.ID {
				sb.Ready = false
			}
		}
		if *stops++; *stops <= times {
			return &Failure{Reason: "KillPodSandboxError", Message: `plugin type="calico" failed (delete)`}
		}
		return nil
	}
	return stops
}

func TestASandboxWhoseNetworkDoesNotGoDownIsStoppedUntilItDoes(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"deleted": func(w *world) {
			w.settle(time.Minute)
			deleteIn(w, 30)
		},
		"not wanted any more": func(w *world) {
			w.settle(time.Minute)
			w.s.Removed, w.s.Cleaned.API = true, true
		},
		"unknown to all sources": func(w *world) {
			w.settle(time.Minute)
			w.s.Pod, w.s.Cleaned.API = nil, true
		},
		"ended by itself": func(w *world) { w.exits["a"] = []int32{0} },
	} {
		w := newWorld(testPod(v1.RestartPolicyNever, "a"))
		stops := networkFails(w, 2)
		end(w)
		for w.s.Now.Before(start.Add(time.Hour)) && *stops < 3 {
			w.settle(time.Second)
			for _, later := range []string{"delete object ", "remove sandbox ", "remove cgroup ", "tear down volumes "} {
				if *stops < 3 && w.count(later) > 0 {
					t.Errorf("%s: while the network is up: %v", name, w.log)
				}
			}
			w.s.Now = w.s.Now.Add(time.Second)
		}
		w.settle(time.Hour)
		if *stops != 3 {
			t.Errorf("%s: the sandbox was stopped %d times; log %v", name, *stops, w.log)
		}
		if name == "deleted" && !w.s.Cleaned.API {
			t.Errorf("the object was not deleted in the end: %v", w.log)
		}
	}
}

func TestASandboxThatDiedIsStoppedBeforeTheNextIsMade(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		w := newWorld(testPod(policy, "a"))
		w.s.Node.DeadContainers = 1
		w.settle(time.Minute)
		w.s.Observed.Sandboxes[0].Ready = false
		w.end(w.newest("a"), 255)
		w.log = nil
		stops := networkFails(w, 1)
		w.step()
		if *stops != 1 || w.count("make sandbox ") != 0 {
			t.Errorf("%s: first %v", policy, w.log)
		}
		w.settle(24 * time.Hour)
		made := 1
		if policy == v1.RestartPolicyNever {
			made = 0
		}
		if *stops != 2 || w.count("make sandbox ") != made {
			t.Errorf("%s: within a day %v", policy, w.log)
		}
	}
}

func TestAnEarlierLifesSandboxIsStoppedOnceMore(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyNever, "a"))
	w.exits["a"] = []int32{0}
	w.settle(time.Hour)
	w.s.StoppedSandboxes = map[string]bool{} // the process restarts
	w.log = nil
	w.settle(time.Hour)
	if w.count("stop sandbox ") != 1 {
		t.Errorf("log %v", w.log)
	}
}

func deleteIn(w *world, grace int64) {
	at := metav1.NewTime(w.s.Now.Add(time.Duration(grace) * time.Second))
	w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &at, &grace
}

// Seed 3275 of the simulation: the process of a sandbox died while the runtime
// did not answer for a start in it.
func TestASandboxIsNotStoppedWhileAContainerStartsInIt(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	for w.newest("a") == nil {
		w.step()
	}
	c := *w.newest("a")
	w.s.Observed.Containers = nil
	w.s.Observed.Sandboxes[0].Ready = false
	start := podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "a"}, Container: "a", SandboxID: c.SandboxID}
	w.s.InFlight[start.Key] = start
	if got := kinds(Plan(w.s).Actions); got[podstate.StopSandbox] > 0 || got[podstate.MakeSandbox] > 0 {
		t.Fatalf("while it starts: %v", got)
	}
	delete(w.s.InFlight, start.Key)
	w.s.Observed.Containers = []podstate.Container{c}
	out := Plan(w.s)
	if got := kinds(out.Actions); got[podstate.KillContainer] != 1 || got[podstate.StopSandbox] > 0 {
		t.Errorf("when it is seen to run: %+v", out.Actions)
	}
	if w.settle(time.Minute); w.newest("a").State != podstate.StateRunning || w.newest("a").SandboxID == c.SandboxID {
		t.Errorf("in the end: %+v", w.newest("a"))
	}
}

// The pods that make the network are such.
func TestAPodOnTheHostsNetworkNeedsNoReadyNetwork(t *testing.T) {
	for _, hosts := range []bool{true, false} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.s.Pod.Spec.HostNetwork, w.s.Node.NetworkReady = hosts, false
		w.settle(time.Minute)
		if runs := w.newest("a") != nil; runs != hosts {
			t.Errorf("on the host's network %v: it runs %v", hosts, runs)
		}
		w.s.Node.NetworkReady = true
		if w.settle(time.Minute); w.newest("a") == nil {
			t.Errorf("on the host's network %v: it does not run though the network is ready", hosts)
		}
	}
}

// Source: the kubelet's podSandboxChanged.
func TestASandboxWithoutAnAddressIsReplaced(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	was := &w.s.Observed.Sandboxes[0]
	was.IPs = nil
	w.settle(10 * time.Minute)
	if c := w.newest("a"); c.State != podstate.StateRunning || c.SandboxID == was.ID || c.RestartCount != 1 {
		t.Errorf("the container is %+v", c)
	}
}

// Nobody knows which of them has the pod's network, so neither stays.
// Source: the kubelet's podSandboxChanged.
func TestOfTwoSandboxesThatAreReadyNeitherStaysAndOneIsMade(t *testing.T) {
	for name, tc := range map[string]struct {
		policy v1.RestartPolicy
		// newer, with its attempt; the other is the one that the container runs in.
		newer   podstate.Sandbox
		attempt uint32 // of the sandbox in the end; 0 when none is made
	}{
		"both of one attempt":              {v1.RestartPolicyAlways, podstate.Sandbox{Ready: true}, 1},
		"the newer has nothing":            {v1.RestartPolicyAlways, podstate.Sandbox{Ready: true, Attempt: 1}, 2},
		"the newer is down":                {v1.RestartPolicyAlways, podstate.Sandbox{Attempt: 1}, 2},
		"what was killed starts no more":   {v1.RestartPolicyNever, podstate.Sandbox{Ready: true, Attempt: 1}, 0},
		"what was killed starts once more": {v1.RestartPolicyOnFailure, podstate.Sandbox{Ready: true, Attempt: 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testPod(tc.policy, "a"))
			w.settle(time.Minute)
			first := w.newest("a")
			newer := tc.newer
			newer.ID, newer.IPs = "newer", []string{"10.0.0.3"}
			w.s.Observed.Sandboxes = slices.Insert(w.s.Observed.Sandboxes, 0, newer)
			w.log = nil
			w.settle(10 * time.Minute)
			for _, old := range []string{"newer", first.SandboxID} {
				if sb := w.s.Observed.Sandbox(old); sb != nil && sb.Ready {
					t.Errorf("sandbox %s stays", old)
				}
			}
			if made := w.count(string(podstate.MakeSandbox) + " "); made > 1 || (made == 1) != (tc.attempt > 0) {
				t.Fatalf("%d sandboxes were made: %v", made, w.log)
			}
			if tc.attempt == 0 {
				if w.out.Status.Phase != v1.PodFailed {
					t.Errorf("phase %s", w.out.Status.Phase)
				}
				return
			}
			c := w.newest("a")
			if sb := w.s.Observed.Sandbox(c.SandboxID); sb == nil || sb.Attempt != tc.attempt || c.State != podstate.StateRunning || c.RestartCount != 1 {
				t.Errorf("the container is %+v, in sandbox %+v", c, sb)
			}
		})
	}
}

// A runtime shows a sandbox before its network is up, and not as ready.
func TestASandboxThatIsBeingMadeIsNotStopped(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Observed.Sandboxes[0].Ready = false
	for w.s.Observed.Sandboxes[0].Ready || !w.s.StoppedSandboxes[w.s.Observed.Sandboxes[0].ID] {
		w.step()
	}
	key := podstate.Key{Kind: podstate.MakeSandbox}
	w.s.InFlight[key] = podstate.Action{Key: key, Attempt: 1}
	w.s.Observed.Sandboxes = append([]podstate.Sandbox{{ID: "made", Attempt: 1, CreatedAt: w.s.Now}}, w.s.Observed.Sandboxes...)
	for _, deleted := range []bool{false, true} {
		if deleted {
			deleteIn(w, 30)
		}
		for _, a := range Plan(w.s).Actions {
			if a.Kind == podstate.StopSandbox && a.ID == "made" {
				t.Errorf("deleted %v: it is stopped", deleted)
			}
		}
	}
	delete(w.s.InFlight, key)
	if !slices.ContainsFunc(Plan(w.s).Actions, func(a podstate.Action) bool { return a.Kind == podstate.StopSandbox && a.ID == "made" }) {
		t.Error("what was left of it is not stopped")
	}
}
