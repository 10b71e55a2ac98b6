package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// stopping plays the end of a pod on virtual time: preStop hooks and processes
// take the time they are given. It logs each beginning with its second.
type stopping struct {
	*world
	hooks, ends map[string]time.Duration
	due         map[podstate.Key]time.Time
	log         []string
}

func (s *stopping) play(seconds int) {
	began := s.world.s.Now
	for range seconds * 2 {
		for {
			out := Plan(s.world.s)
			s.world.s.Reported = out.Status
			if out.Terminating && s.world.s.EndSince.IsZero() {
				s.world.s.EndSince = s.world.s.Now
			}
			busy := false
			for _, key := range out.Cancel {
				delete(s.world.s.InFlight, key)
				busy = s.returned(key) || busy
			}
			for _, a := range out.Actions {
				busy = s.begin(a, s.world.s.Now.Sub(began)) || busy
			}
			if !busy {
				break
			}
		}
		s.world.s.Now = s.world.s.Now.Add(500 * time.Millisecond)
		for key, at := range s.due {
			if !at.After(s.world.s.Now) {
				s.returned(key)
			}
		}
	}
}

func (s *stopping) begin(a podstate.Action, at time.Duration) bool {
	switch a.Kind {
	case podstate.BeginStop:
		s.log = append(s.log, fmt.Sprintf("%gs preStop %s", at.Seconds(), a.Container))
		s.due[a.Key] = s.world.s.Now.Add(s.hooks[a.Container])
	case podstate.KillContainer:
		s.log = append(s.log, fmt.Sprintf("%gs stop %s within %ds", at.Seconds(), a.Container, a.GraceSeconds))
		took := min(s.ends[a.Container], podutil.Seconds(a.GraceSeconds))
		s.due[a.Key] = s.world.s.Now.Add(took)
	default:
		return false
	}
	if _, begun := s.world.s.Stops[a.ID]; !begun {
		s.world.s.Stops[a.ID] = ContainerStop{}.Ask(a, s.world.s.Now)
	} else if a.Kind == podstate.KillContainer && !a.Announced {
		s.log = append(s.log, "announced twice: "+a.Container)
	}
	s.world.s.InFlight[a.Key] = a
	return true
}

func (s *stopping) returned(key podstate.Key) bool {
	delete(s.world.s.InFlight, key)
	delete(s.due, key)
	if key.Kind == podstate.BeginStop {
		stop := s.world.s.Stops[key.Object]
		stop.PreStopDone = true
		s.world.s.Stops[key.Object] = stop
	} else if c := s.container(key.Object); c.State == podstate.StateRunning {
		s.end(c, 0)
	}
	return true
}

func withPreStop(pod *v1.Pod, names ...string) *v1.Pod {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if slices.Contains(names, list[i].Name) {
				list[i].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
			}
		}
	}
	return pod
}

// Each case is a way in which a pod ends.
func TestTheEndOfAPodGoesByTheBook(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		row         string
		sidecars    []string
		preStop     []string
		hooks, ends map[string]time.Duration
		grace       int64
		want        []string
	}{
		{"all regular containers are stopped at once", nil, nil, nil, nil, 30, []string{"0s stop a within 30s", "0s stop b within 30s"}},
		{"preStop runs first and its whole seconds are subtracted", nil, []string{"a"}, map[string]time.Duration{"a": 3500 * time.Millisecond}, nil, 10,
			[]string{"0s preStop a", "0s stop b within 10s", "3.5s stop a within 7s"}},
		{"preStop is bounded by the grace period; then comes the floor of 2 s", nil, []string{"a"}, map[string]time.Duration{"a": time.Hour}, nil, 5,
			[]string{"0s preStop a", "0s stop b within 5s", "5s stop a within 2s"}},
		{"a grace period of a second gives two", nil, nil, nil, nil, 1, []string{"0s stop a within 2s", "0s stop b within 2s"}},
		{"sidecars wait for the regular containers and end in reverse order", []string{"x", "y"}, nil, nil, map[string]time.Duration{"a": 4 * s, "y": 2 * s}, 30,
			[]string{"0s preStop x", "0s preStop y", "0s stop a within 30s", "0s stop b within 30s", "4s stop y within 26s", "6s stop x within 24s"}},
		{"a sidecar's preStop runs at once, and it waits after it", []string{"x"}, []string{"x"}, map[string]time.Duration{"x": 2 * s}, map[string]time.Duration{"a": 4 * s}, 30,
			[]string{"0s preStop x", "0s stop a within 30s", "0s stop b within 30s", "4s stop x within 26s"}},
		{"a sidecar's preStop may outlast those that it served", []string{"x"}, []string{"x"}, map[string]time.Duration{"x": 6 * s}, map[string]time.Duration{"a": 4 * s}, 30,
			[]string{"0s preStop x", "0s stop a within 30s", "0s stop b within 30s", "6s stop x within 24s"}},
		{"waiting consumes grace: at its end sidecars are stopped in no order", []string{"x", "y"}, nil, nil, map[string]time.Duration{"a": time.Hour, "x": s, "y": s}, 5,
			[]string{"0s preStop x", "0s preStop y", "0s stop a within 5s", "0s stop b within 5s", "5s stop x within 2s", "5s stop y within 2s"}},
		{"a sidecar's preStop is cut at the end of the grace period", []string{"x"}, []string{"x"}, map[string]time.Duration{"x": time.Hour}, nil, 5,
			[]string{"0s preStop x", "0s stop a within 5s", "0s stop b within 5s", "5s stop x within 2s"}},
	} {
		t.Run(tc.row, func(t *testing.T) {
			pod := withPreStop(withSidecar(testPod(v1.RestartPolicyAlways, "a", "b"), tc.sidecars...), tc.preStop...)
			pod.Spec.TerminationGracePeriodSeconds = &tc.grace
			w := newWorld(pod)
			w.settle(time.Minute)
			w.s.Removed = true
			p := &stopping{world: w, hooks: tc.hooks, ends: tc.ends, due: map[podstate.Key]time.Time{}}
			p.play(40)
			got := slices.Clone(p.log)
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Fatalf("it went\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestAGracePeriodWithoutEndDoesNotBecomeNone(t *testing.T) {
	for _, grace := range []int64{math.MaxInt64, math.MaxInt64 / int64(time.Second), math.MaxInt32} {
		pod := withPreStop(testPod(v1.RestartPolicyAlways, "a", "b"), "a")
		pod.Spec.TerminationGracePeriodSeconds = &grace
		w := newWorld(pod)
		w.settle(time.Minute)
		w.s.Stop = &podstate.Stop{Reason: "Evicted"}
		p := &stopping{world: w, hooks: map[string]time.Duration{"a": 30 * time.Second}, ends: map[string]time.Duration{"b": time.Hour}, due: map[podstate.Key]time.Time{}}
		p.play(20)
		want := []string{"0s preStop a", fmt.Sprintf("0s stop b within %ds", grace)}
		if got := slices.Sorted(slices.Values(p.log)); !slices.Equal(got, want) || w.out.Overdue {
			t.Errorf("%d s: it went %q, overdue %v; want %q", grace, got, w.out.Overdue, want)
		}
		if d := podutil.Seconds(grace); d < 50*365*24*time.Hour || d+time.Hour < d || time.Until(time.Now().Add(d)) <= 0 {
			t.Errorf("%d s are %v", grace, d)
		}
	}
	if podutil.Seconds(-1) != 0 || podutil.Seconds(3) != 3*time.Second {
		t.Error("seconds are not seconds")
	}
}

func TestAnExitedContainerHasNoPreStop(t *testing.T) {
	w := newWorld(withPreStop(testPod(v1.RestartPolicyNever, "a", "b"), "a"))
	w.exits["a"] = []int32{0}
	w.settle(time.Minute)
	w.s.Removed, w.log = true, nil
	w.settle(time.Minute)
	if w.count("begin stop a") != 0 || w.count("kill container b") != 1 {
		t.Fatalf("log %v", w.log)
	}
}

func TestAFailedProbeRunsPreStopWithinItsOwnGracePeriod(t *testing.T) {
	pod := withPreStop(testPod(v1.RestartPolicyAlways, "a"), "a")
	grace := int64(4)
	pod.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &grace}
	w := newWorld(pod)
	w.settle(time.Minute)
	w.s.Probes[podstate.ProbeKey{Container: "a", Type: podstate.Liveness}] = podstate.ProbeResult{ContainerID: w.newest("a").ID}
	p := &stopping{world: w, hooks: map[string]time.Duration{"a": time.Hour}, due: map[podstate.Key]time.Time{}}
	p.play(4)
	if want := []string{"0s preStop a"}; !slices.Equal(p.log, want) {
		t.Fatalf("log %q, want %q", p.log, want)
	}
	p.play(1)
	if want := []string{"0s preStop a", "0s stop a within 2s"}; !slices.Equal(p.log, want) {
		t.Fatalf("log %q, want %q", p.log, want)
	}
}

func TestAPostStartHookIsCutWhenItsContainerIsNotWantedAsItIs(t *testing.T) {
	for name, change := range map[string]func(*world, *podstate.Container){
		"its container ended":    func(w *world, c *podstate.Container) { w.end(c, 1) },
		"its definition changed": func(_ *world, c *podstate.Container) { c.SpecHash = "another" },
		"its sandbox is gone":    func(w *world, _ *podstate.Container) { w.s.Observed.Sandboxes[0].Ready = false },
		"the pod ends":           func(w *world, _ *podstate.Container) { w.s.Removed = true },
		"nothing":                nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.settle(time.Minute)
			key := podstate.Key{Kind: podstate.StartContainer, Object: "a"}
			c := w.newest("a")
			c.Hook = podstate.HookRunning
			w.s.InFlight[key] = podstate.Action{Key: key, Container: "a", SandboxID: c.SandboxID}
			if change != nil {
				change(w, c)
			}
			out := Plan(w.s)
			if cut := slices.Contains(out.Cancel, key); cut != (change != nil) {
				t.Fatalf("cancel %v, actions %v", out.Cancel, out.Actions)
			}
		})
	}
}

func TestAStopThatIsTriedAgainGivesNoLessThanTheWholePeriod(t *testing.T) {
	grace := int64(10)
	for _, tc := range []struct {
		name string
		// Times are after the whole second in which the deletion was asked for.
		ending, deleted time.Duration // when this podsync saw each
		restarted       bool          // it saw them at its start
		now, want       time.Duration // of the second try, and of the kill at the earliest
	}{
		{"in the life that saw the deletion", 900 * time.Millisecond, 900 * time.Millisecond, false, 5950 * time.Millisecond, 10900 * time.Millisecond},
		{"after another end", 300 * time.Millisecond, 2900 * time.Millisecond, false, 5950 * time.Millisecond, 12900 * time.Millisecond},
		{"after another end in the same second", 300 * time.Millisecond, 900 * time.Millisecond, false, 5350 * time.Millisecond, 10900 * time.Millisecond},
		{"in a later life, which has asked nobody to end yet", 5 * time.Second, 5 * time.Second, true, 5950 * time.Millisecond, 15950 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.settle(time.Minute)
			second := w.s.Now.Truncate(time.Second)
			at := metav1.NewTime(second.Add(10 * time.Second))
			w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &at, &grace
			w.s.Now, w.s.EndSince, w.s.DeletionSince = second.Add(tc.now), second.Add(tc.ending), second.Add(tc.deleted)
			if !tc.restarted {
				w.s.Stops[w.newest("a").ID] = asked(w.s.EndSince, podstate.CauseEnd, 30)
			}
			out := Plan(w.s)
			if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer {
				t.Fatalf("actions %+v", out.Actions)
			}
			killed := tc.now + time.Duration(out.Actions[0].GraceSeconds)*time.Second
			if killed < tc.want || killed > tc.want+time.Second {
				t.Errorf("killed at %v, want %v, and a second more at most", killed, tc.want)
			}
		})
	}
}

// A migration that an init container does is not cut in half.
func TestARunningInitContainerIsNotKilledForItsImage(t *testing.T) {
	w := newWorld(withInit(testPod(v1.RestartPolicyNever, "a"), "i"))
	w.exits["i"], w.runs = []int32{0}, time.Minute
	for w.newest("i") == nil {
		w.step()
	}
	w.s.Pod = w.s.Pod.DeepCopy()
	w.s.Pod.Spec.InitContainers[0].Image = "other"
	w.settle(time.Hour)
	if w.count("kill container i") != 0 || w.count("start container i") != 1 || w.count("start container a") != 1 {
		t.Errorf("log %v", w.log)
	}
}

func TestAPreStopHookThatUsedUpItsTimeLivesAsLongAsItsContainer(t *testing.T) {
	grace := int64(5)
	pod := withPreStop(testPod(v1.RestartPolicyAlways, "a"), "a")
	pod.Spec.TerminationGracePeriodSeconds = &grace
	w := newWorld(pod)
	w.settle(time.Minute)
	w.s.Removed = true
	hook, kill := podstate.Key{Kind: podstate.BeginStop, Object: w.newest("a").ID}, podstate.Key{Kind: podstate.KillContainer, Object: w.newest("a").ID}
	p := &stopping{world: w, hooks: map[string]time.Duration{"a": time.Hour}, ends: map[string]time.Duration{"a": time.Hour}, due: map[podstate.Key]time.Time{}}
	p.play(6)
	_, hooked := w.s.InFlight[hook]
	_, killing := w.s.InFlight[kill]
	if !hooked || !killing {
		t.Errorf("after the period the hook runs %v, the container is being stopped %v", hooked, killing)
	}
	p.play(2) // the two seconds that every container gets
	if _, hooked = w.s.InFlight[hook]; hooked || w.newest("a").Live() {
		t.Errorf("when its container has ended (%v) the hook runs %v", !w.newest("a").Live(), hooked)
	}
}

// A start that the runtime has done but does not answer for is in flight until
// the runtime can be looked at; the container cannot be asked to end before.
func TestAContainerWhoseStartHoldsUpItsEndHasItsWholeGracePeriod(t *testing.T) {
	for name, pod := range map[string]*v1.Pod{
		"deleted": testPod(v1.RestartPolicyAlways, "a"), "with a hook": withPreStop(testPod(v1.RestartPolicyAlways, "a"), "a"),
	} {
		w := newWorld(pod)
		w.settle(time.Minute)
		c := w.newest("a")
		start := podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "a"}, Container: "a", SandboxID: c.SandboxID, Attempt: c.RestartCount}
		w.s.InFlight[start.Key] = start
		grace := int64(30)
		w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: w.s.Now.Add(30 * time.Second)}, &grace
		w.s.DeletionSince = w.s.Now
		w.step()
		if len(w.out.Actions) > 0 || !w.out.Terminating {
			t.Fatalf("%s: while it starts: %+v", name, w.out.Actions)
		}
		w.s.Now = w.s.Now.Add(time.Minute)
		delete(w.s.InFlight, start.Key)
		out := Plan(w.s)
		if name == "with a hook" {
			if kinds(out.Actions)[podstate.BeginStop] != 1 || kinds(out.Actions)[podstate.KillContainer] != 0 {
				t.Errorf("%s: %+v", name, out.Actions)
			}
			stop := asked(w.s.Now, podstate.CauseEnd, 30)
			stop.PreStopDone = true
			w.s.Stops[c.ID] = stop
			w.s.Now = w.s.Now.Add(10 * time.Second)
			out = Plan(w.s)
		}
		want := map[string]int64{"deleted": 30, "with a hook": 20}[name]
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != want {
			t.Errorf("%s: %+v; want %d s", name, out.Actions, want)
		}
	}
}

// A stop that runs is over at some time, whatever is asked for meanwhile: to begin
// it anew costs two seconds at least.
func TestNothingMakesAStopThatHasBegunLonger(t *testing.T) {
	for _, tc := range []struct {
		name     string
		ran      time.Duration // since the stop of 10 s began
		grace    int64         // of the deletion that comes then
		replaced bool
	}{
		{"a deletion with less, in time", 3 * time.Second, 2, true},
		{"a deletion with none, in time", 3 * time.Second, 0, true},
		{"a deletion with none, shortly before it is over", 9900 * time.Millisecond, 0, false},
		{"a deletion with less, shortly before it is over", 8500 * time.Millisecond, 5, false},
		{"a deletion with more", 3 * time.Second, 30, false},
	} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		ten := int64(10)
		w.s.Pod.Spec.TerminationGracePeriodSeconds = &ten
		w.settle(time.Minute)
		w.s.Removed = true
		stop := Plan(w.s).Actions[0]
		if stop.Kind != podstate.KillContainer || stop.GraceSeconds != 10 {
			t.Fatalf("%s: %+v", tc.name, stop)
		}
		w.s.InFlight[stop.Key] = stop
		w.s.EndSince = w.s.Now
		w.s.Stops[stop.ID] = asked(w.s.Now, podstate.CauseEnd, 10)
		w.s.Now = w.s.Now.Add(tc.ran)
		at := metav1.NewTime(w.s.Now)
		w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds, w.s.DeletionSince = &at, &tc.grace, w.s.Now
		out := Plan(w.s)
		if replaced := len(out.Actions) == 1 && out.Actions[0].Replace; replaced != tc.replaced {
			t.Errorf("%s: actions %+v", tc.name, out.Actions)
		}
	}
}

// The time that a probe gives a container stands when its pod is deleted while
// its preStop hook runs.
func TestADeletionGivesNoMoreTimeToAContainerThatIsBeingStopped(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	five := int64(5)
	pod.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &five}
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
	w := newWorld(pod)
	w.settle(time.Minute)
	id := w.newest("a").ID
	w.s.Probes[podstate.ProbeKey{Container: "a", Type: podstate.Liveness}] = podstate.ProbeResult{ContainerID: id}
	begin := Plan(w.s).Actions[0]
	if begin.Kind != podstate.BeginStop || begin.GraceTotalSeconds != 5 {
		t.Fatalf("%+v", begin)
	}
	w.s.InFlight[begin.Key] = begin
	w.s.Stops[id] = asked(w.s.Now, podstate.CauseProbe, 5)
	w.s.Now = w.s.Now.Add(3 * time.Second)
	at, grace := metav1.NewTime(w.s.Now), int64(30)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds, w.s.DeletionSince, w.s.EndSince = &at, &grace, w.s.Now, w.s.Now
	if out := Plan(w.s); len(out.Actions) != 0 || !out.Wake.Equal(w.s.Now.Add(2*time.Second)) {
		t.Fatalf("while the hook runs: %+v, next at %s", out.Actions, out.Wake.Sub(w.s.Now))
	}
	w.s.Now = w.s.Now.Add(2 * time.Second)
	if out := Plan(w.s); len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != 2 {
		t.Fatalf("when its time is over: %+v", out.Actions)
	}
}

// A container whose sandbox has died is being stopped when its pod is deleted with
// less, and then with less still: what each deletion gives counts from that
// deletion, and not from when the stop began.
func TestAShorterPeriodCountsFromWhenItWasGiven(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Observed.Sandboxes[0].Ready = false
	stopFor := func(grace int64, replaces bool) {
		t.Helper()
		out := Plan(w.s)
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != grace || out.Actions[0].Replace != replaces {
			t.Fatalf("want a stop within %d s, anew: %t; got %+v", grace, replaces, out.Actions)
		}
		a := out.Actions[0]
		w.s.InFlight[a.Key], w.s.Stops[a.ID] = a, w.s.Stops[a.ID].Ask(a, w.s.Now)
	}
	deleted := func(after time.Duration, grace int64) {
		old := w.s.Pod
		w.s.Now = w.s.Now.Add(after)
		at := metav1.NewTime(w.s.Now.Add(podutil.Seconds(grace)))
		w.s.Pod = old.DeepCopy()
		w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &at, &grace
		w.s.DeletedAnew(old, w.s.Now)
	}
	stopFor(30, false)
	deleted(12700*time.Millisecond, 5)
	stopFor(5, true)
	w.s.EndSince = w.s.Now
	deleted(500*time.Millisecond, 3)
	stopFor(3, true)
}

// The texts are those of the events with the reason Killing.
func TestAKillSaysWhy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy v1.RestartPolicy
		change func(*world, *podstate.Container)
		want   string
	}{
		{"the pod ends", v1.RestartPolicyAlways, func(w *world, _ *podstate.Container) { w.s.Removed = true }, "Stopping container a"},
		{"its sandbox is not usable", v1.RestartPolicyAlways, func(w *world, _ *podstate.Container) { w.s.Observed.Sandboxes[0].Ready = false }, "Stopping container a"},
		{"its definition changed", v1.RestartPolicyAlways, func(_ *world, c *podstate.Container) { c.SpecHash = "x" }, "Container a definition changed, will be restarted"},
		{"its state is unknown", v1.RestartPolicyAlways, func(_ *world, c *podstate.Container) { c.State = podstate.StateUnknown }, `Container is in "unknown" state, try killing it before restart`},
		{"its hook failed", v1.RestartPolicyAlways, func(_ *world, c *podstate.Container) { c.Hook = podstate.HookFailed }, "FailedPostStartHook"},
		{"liveness", v1.RestartPolicyAlways, probed(podstate.Liveness), "Container a failed liveness probe, will be restarted"},
		{"startup", v1.RestartPolicyOnFailure, probed(podstate.Startup), "Container a failed startup probe, will be restarted"},
		{"liveness, and that is the end", v1.RestartPolicyNever, probed(podstate.Liveness), "Container a failed liveness probe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(tc.policy, "a"))
			w.settle(time.Minute)
			tc.change(w, w.newest("a"))
			out := Plan(w.s)
			if len(out.Actions) != 1 || out.Actions[0].Reason != tc.want {
				t.Errorf("actions %+v, want %q", out.Actions, tc.want)
			}
		})
	}
}

// It cannot start again: a kill would only take it from whoever looks into the pod with it.
func TestADebugContainerInNoKnownStateIsLeftAlone(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.s.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "img"}}}
	w.settle(time.Minute)
	w.newest("debug").State = podstate.StateUnknown
	if out := Plan(w.s); len(out.Actions) != 0 {
		t.Errorf("actions %+v", out.Actions)
	}
	w.s.Removed = true
	if out := Plan(w.s); len(out.Actions) == 0 {
		t.Error("it outlives its pod")
	}
}

func TestAKillOfASidecarSaysWhatItIs(t *testing.T) {
	for want, change := range map[string]func(*world, *podstate.Container){
		"Init container side definition changed":                              func(_ *world, c *podstate.Container) { c.SpecHash = "x" },
		`Init container is in "unknown" state, try killing it before restart`: func(_ *world, c *podstate.Container) { c.State = podstate.StateUnknown },
		"Init container side failed liveness probe":                           probed(podstate.Liveness),
		"Init container side failed startup probe":                            probed(podstate.Startup),
	} {
		w := newWorld(withSidecar(testPod(v1.RestartPolicyOnFailure, "a"), "side"))
		w.settle(time.Minute)
		change(w, w.newest("side"))
		if out := Plan(w.s); len(out.Actions) != 1 || out.Actions[0].Reason != want {
			t.Errorf("actions %+v, want %q", out.Actions, want)
		}
	}
}

func probed(k podstate.ProbeType) func(*world, *podstate.Container) {
	return func(w *world, c *podstate.Container) {
		w.s.Probes[podstate.ProbeKey{Container: c.Name, Type: k}] = podstate.ProbeResult{ContainerID: c.ID}
	}
}
