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
)

// stopping plays the end of a pod on virtual time: preStop hooks and processes
// take the time they are given. It logs each beginning with its second.
type stopping struct {
	*world
	hooks, ends map[string]time.Duration
	due         map[Key]time.Time
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

func (s *stopping) begin(a Action, at time.Duration) bool {
	switch a.Kind {
	case BeginStop:
		s.log = append(s.log, fmt.Sprintf("%gs preStop %s", at.Seconds(), a.Container))
		s.due[a.Key] = s.world.s.Now.Add(s.hooks[a.Container])
	case KillContainer:
		s.log = append(s.log, fmt.Sprintf("%gs stop %s within %ds", at.Seconds(), a.Container, a.GraceSeconds))
		took := min(s.ends[a.Container], Seconds(a.GraceSeconds))
		s.due[a.Key] = s.world.s.Now.Add(took)
	default:
		return false
	}
	if _, begun := s.world.s.Stops[a.ID]; !begun {
		s.world.s.Stops[a.ID] = ContainerStop{Began: s.world.s.Now}
	} else if a.Kind == KillContainer && !a.Announced {
		s.log = append(s.log, "announced twice: "+a.Container)
	}
	s.world.s.InFlight[a.Key] = a
	return true
}

func (s *stopping) returned(key Key) bool {
	delete(s.world.s.InFlight, key)
	delete(s.due, key)
	if key.Kind == BeginStop {
		stop := s.world.s.Stops[key.Object]
		stop.PreStopDone = true
		s.world.s.Stops[key.Object] = stop
	} else if c := s.container(key.Object); c.State == StateRunning {
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

// Each case is a row of the termination table (kubelet-surface 4.7).
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
			p := &stopping{world: w, hooks: tc.hooks, ends: tc.ends, due: map[Key]time.Time{}}
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
		w.s.Stop = &Stop{Reason: "Evicted"}
		p := &stopping{world: w, hooks: map[string]time.Duration{"a": 30 * time.Second}, ends: map[string]time.Duration{"b": time.Hour}, due: map[Key]time.Time{}}
		p.play(20)
		want := []string{"0s preStop a", fmt.Sprintf("0s stop b within %ds", grace)}
		if got := slices.Sorted(slices.Values(p.log)); !slices.Equal(got, want) || w.out.Overdue {
			t.Errorf("%d s: it went %q, overdue %v; want %q", grace, got, w.out.Overdue, want)
		}
		if d := Seconds(grace); d < 50*365*24*time.Hour || d+time.Hour < d || time.Until(time.Now().Add(d)) <= 0 {
			t.Errorf("%d s are %v", grace, d)
		}
	}
	if Seconds(-1) != 0 || Seconds(3) != 3*time.Second {
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
	w.s.Probes[ProbeKey{"a", Liveness}] = ProbeResult{ContainerID: w.newest("a").ID}
	p := &stopping{world: w, hooks: map[string]time.Duration{"a": time.Hour}, due: map[Key]time.Time{}}
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
	for name, change := range map[string]func(*world, *Container){
		"its container ended":    func(w *world, c *Container) { w.end(c, 1) },
		"its definition changed": func(_ *world, c *Container) { c.SpecHash = "another" },
		"its sandbox is gone":    func(w *world, _ *Container) { w.s.Observed.Sandboxes[0].Ready = false },
		"the pod ends":           func(w *world, _ *Container) { w.s.Removed = true },
		"nothing":                nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.settle(time.Minute)
			key := Key{StartContainer, "a"}
			c := w.newest("a")
			c.Hook = HookRunning
			w.s.InFlight[key] = Action{Key: key, Container: "a", SandboxID: c.SandboxID}
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
		{"in a later life, which has the timestamp's whole seconds only", 5 * time.Second, 5 * time.Second, true, 5950 * time.Millisecond, 11 * time.Second},
		{"in a later life, at a whole second", 5 * time.Second, 5 * time.Second, true, 6 * time.Second, 11 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
			w.settle(time.Minute)
			second := w.s.Now.Truncate(time.Second)
			at := metav1.NewTime(second.Add(10 * time.Second))
			w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &at, &grace
			w.s.Now, w.s.EndSince, w.s.DeletionSince, w.s.EndSeenAtStart = second.Add(tc.now), second.Add(tc.ending), second.Add(tc.deleted), tc.restarted
			out := Plan(w.s)
			if len(out.Actions) != 1 || out.Actions[0].Kind != KillContainer {
				t.Fatalf("actions %+v", out.Actions)
			}
			killed := tc.now + time.Duration(out.Actions[0].GraceSeconds)*time.Second
			if killed < tc.want || killed > tc.want+time.Second {
				t.Errorf("killed at %v, want %v, and a second more at most", killed, tc.want)
			}
		})
	}
}
