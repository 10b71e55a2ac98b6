package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAContainerKilledFromOutsideWaitsForWhatBecomesOfItsSandbox(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*world, *podstate.Container)
		waits  bool
	}{
		{"killed by whoever", func(*world, *podstate.Container) {}, true},
		{"asked to end by whoever", func(_ *world, c *podstate.Container) { c.ExitCode = 143 }, true},
		{"it failed by itself", func(_ *world, c *podstate.Container) { c.ExitCode = 1 }, false},
		{"it took too much memory", func(_ *world, c *podstate.Container) { c.Reason = "OOMKilled" }, false},
		{"we have stopped it", func(w *world, c *podstate.Container) { w.s.Stops[c.ID] = asked(w.s.Now, podstate.CauseEnd, 30) }, false},
		{"its end is a while ago", func(w *world, _ *podstate.Container) { w.s.Now = w.s.Now.Add(nextFollows) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.settle(time.Minute)
			c := w.newest("a")
			w.end(c, 137)
			ended := w.s.Now
			tc.change(w, c)
			out := Plan(w.s)
			if waits := len(out.Actions) == 0; waits != tc.waits {
				t.Fatalf("actions %+v; want to wait: %v", out.Actions, tc.waits)
			}
			if !tc.waits {
				return
			}
			if out.Wake.Sub(ended) != nextFollows || len(out.Waits) != 1 || out.Waits[0].Kind != "container" || out.Waits[0].Object != "a" {
				t.Errorf("wake-up after %v, waits %+v", out.Wake.Sub(ended), out.Waits)
			}
			if s := out.Status.ContainerStatuses[0].State; s.Terminated == nil || s.Terminated.ExitCode != c.ExitCode {
				t.Errorf("state %+v, want that it has ended", s)
			}
		})
	}
}

func TestHowLongAContainerWaitsForItsSandboxIsToldByTheOthers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		others func(w *world, b, c *podstate.Container)
		want   time.Duration // after the end of a
	}{
		{"the others live: each could be the next to end", func(*world, *podstate.Container, *podstate.Container) {}, sandboxMayFollow},
		{"the others have done their work", func(w *world, b, c *podstate.Container) { w.end(b, 0); w.end(c, 0) }, nextFollows},
		{"another was killed, too", func(w *world, b, _ *podstate.Container) { w.s.Now = w.s.Now.Add(10 * time.Millisecond); w.end(b, 137) }, 10*time.Millisecond + sandboxMayFollow},
		{"another was killed before", func(w *world, b, _ *podstate.Container) { w.end(b, 137); b.FinishedAt = b.FinishedAt.Add(-time.Second) }, sandboxMayFollow},
		{"the others were killed long before", func(w *world, b, c *podstate.Container) {
			w.end(b, 137)
			w.end(c, 1)
			b.FinishedAt = b.FinishedAt.Add(-sandboxMayFollow)
		}, nextFollows},
		{"the others failed by themselves", func(w *world, b, c *podstate.Container) { w.end(b, 1); w.end(c, 1) }, nextFollows},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b", "c"))
			w.settle(time.Minute)
			ended := w.s.Now
			w.end(w.newest("a"), 137)
			tc.others(w, w.newest("b"), w.newest("c"))
			p := newPlanner(&w.s)
			if got := p.afterSandbox(p.viewOf("a")).Sub(ended); got != tc.want {
				t.Errorf("it starts after %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTheStartOfAContainerThatWasKilledFromOutsideLooksAtItsSandbox(t *testing.T) {
	for code, want := range map[int32]bool{137: true, 143: true, 1: false} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.settle(time.Minute)
		ended := w.s.Now
		w.end(w.newest("a"), code)
		var start *podstate.Action
		for range 10 {
			w.s.Now = w.s.Now.Add(nextFollows)
			out := Plan(w.s)
			for i := range out.Actions {
				if out.Actions[i].Kind == podstate.StartContainer {
					start = &out.Actions[i]
				}
			}
			if start != nil {
				break
			}
			w.step()
		}
		switch {
		case start == nil:
			t.Errorf("exit code %d: it was not started", code)
		case want && start.SandboxUntil.Sub(ended) != sandboxMayFollow, !want && !start.SandboxUntil.IsZero():
			t.Errorf("exit code %d: its sandbox is looked at until %v, it ended at %v", code, start.SandboxUntil, ended)
		}
	}
}

func TestASandboxThatIsTakenAwayCostsOneRestartAndKeepsTheLastState(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.end(w.newest("a"), 137)
	w.step() // the container's end is told first
	w.s.Now = w.s.Now.Add(100 * time.Millisecond)
	w.s.Observed.Sandboxes, w.s.Observed.Containers = nil, nil
	for w.count("start container a") < 2 {
		w.step()
	}
	made := w.newest("a")
	began := made.StartedAt
	made.State, made.StartedAt = podstate.StateCreated, time.Time{}
	starting := podstate.Key{Kind: podstate.StartContainer, Object: "a"}
	w.s.InFlight[starting] = podstate.Action{Key: starting, Container: "a", SandboxID: made.SandboxID, Attempt: 1}
	w.step() // it is made before it runs
	delete(w.s.InFlight, starting)
	made.State, made.StartedAt = podstate.StateRunning, began
	w.settle(time.Minute)
	cs := w.out.Status.ContainerStatuses[0]
	last := cs.LastTerminationState.Terminated
	if cs.State.Running == nil || cs.RestartCount != 1 || last == nil || last.ExitCode != 137 || w.count("start container a") != 2 {
		t.Fatalf("%+v\nlog %v", cs, w.log)
	}
	if waited := began.Sub(last.FinishedAt.Time); waited >= sandboxMayFollow {
		t.Errorf("it started %v after the end, though its sandbox was known to be gone", waited)
	}
}

func TestAStartThatIsNotOverHasNotFailed(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.end(w.newest("a"), 137)
	w.step()
	start := podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "a"}, Container: "a", SandboxID: w.s.Observed.Sandboxes[0].ID, Attempt: 1}
	refused := podstate.Container{ID: "refused", Name: "a", SandboxID: start.SandboxID, RestartCount: 1, State: podstate.StateExited, ExitCode: 128, Reason: "StartError", FinishedAt: w.s.Now}
	w.s.Observed.Containers = append([]podstate.Container{refused}, w.s.Observed.Containers...)
	w.s.InFlight[start.Key] = start
	w.s.Images["a"] = Image{Spec: "img", Ref: "sha256:1", RestartCount: 1}
	if out := Plan(w.s); len(out.Actions) != 0 || out.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("during the start: actions %+v, status %+v", out.Actions, out.Status.ContainerStatuses[0])
	}
	delete(w.s.InFlight, start.Key)
	if cs := Plan(w.s).Status.ContainerStatuses[0]; cs.RestartCount != 1 {
		t.Errorf("after a start that failed: %+v", cs)
	}
}
