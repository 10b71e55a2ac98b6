package execute

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// places notes in which order places are asked for.
type places struct{ asked []limiter.Order }

func (p *places) Acquire(_ context.Context, o limiter.Order) (func(), error) {
	p.asked = append(p.asked, o)
	return func() {}, nil
}

func TestWhatHasEndedIsRemovedAfterAllPodsThatAreThere(t *testing.T) {
	h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "c1", Name: "c", State: podstate.StateExited}}}}
	e := newExecutor(h, Config{})
	p := &places{}
	e.deps.Stops = p
	began := time.Now()
	for _, a := range []podstate.Action{
		{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: "c1"}, ID: "c1", Container: "c"},
		{Key: podstate.Key{Kind: podstate.RemoveSandbox, Object: "sb"}, ID: "sb"},
		{Key: podstate.Key{Kind: podstate.StopSandbox, Object: "sb"}, ID: "sb"},
	} {
		task := h.task(a)
		task.Order = limiter.Order{Critical: true, Created: began.Add(-time.Hour)}
		_, _ = e.Do(t.Context(), t.Context(), task)
	}
	if len(p.asked) != 3 || p.asked[0].Critical || p.asked[0].Created.Before(began) || p.asked[1].Created.Before(began) || !p.asked[2].Critical ||
		!p.asked[0].Idle || !p.asked[1].Idle || p.asked[2].Idle {
		t.Errorf("places were asked for with %+v", p.asked)
	}
}

// noPlace is full for good.
type noPlace struct{}

func (noPlace) Acquire(ctx context.Context, _ limiter.Order) (func(), error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAContainerIsStoppedWithItsWholeGraceThoughNoPlaceIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}}}}
		e := newExecutor(h, Config{})
		e.deps.Stops = noPlace{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := e.Do(ctx, ctx, h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 7}))
		if got := calls(h.log); err != nil || !slices.Contains(got, "stop r 7s") {
			t.Errorf("calls %q, error %v", got, err)
		}
	})
}

func TestAStopIsAnnouncedOnceAndItsHookMayFail(t *testing.T) {
	for name, tc := range map[string]struct {
		hook   func(context.Context) error // nil: there is none
		cut    time.Duration
		failed bool
	}{
		"no hook":            {nil, time.Minute, false},
		"a hook":             {func(context.Context) error { return nil }, time.Minute, false},
		"a hook that fails":  {func(context.Context) error { return errors.New("no") }, time.Minute, true},
		"a hook that is cut": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &host{hook: tc.hook, now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}}}}
				e := newExecutor(h, Config{})
				begin := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.BeginStop, Object: "r"}, ID: "r", Container: "c", Reason: "Stopping container c"})
				if tc.hook != nil {
					begin.Pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.cut)
				defer cancel()
				if _, err := e.Do(t.Context(), ctx, begin); err != nil {
					t.Fatal(err)
				}
				kill := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 7, Announced: true, Reason: "Stopping container c"})
				if _, err := e.Do(t.Context(), t.Context(), kill); err != nil {
					t.Fatal(err)
				}
				said := slices.DeleteFunc(slices.Clone(h.log), func(l string) bool { return l != "event Killing Stopping container c" })
				if len(said) != 1 || !slices.Contains(h.log, "stop r 7s") || slices.Contains(h.log, "event FailedPreStopHook PreStopHook failed") != tc.failed {
					t.Errorf("log %q, want one announcement, a stop with 7s, hook failed %v", h.log, tc.failed)
				}
			})
		})
	}
}

func TestAnOrphansHookIsRunFromItsRecord(t *testing.T) {
	ran := 0
	h := &host{hook: func(context.Context) error { ran++; return errors.New("no") }}
	h.now.Containers = []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning, PreStop: &v1.LifecycleHandler{}}}
	task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.BeginStop, Object: "r"}, ID: "r", Container: "c"})
	task.Pod = nil
	if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task); err != nil || ran != 1 {
		t.Errorf("error %v, the hook ran %d times, log %q", err, ran, h.log)
	}
}

func TestAStopThatMayTakeForEverIsNotShort(t *testing.T) {
	h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}}}}
	kill := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: math.MaxInt64})
	if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), kill); err != nil || !slices.Contains(h.log, "stop r "+podutil.Seconds(math.MaxInt64).String()) {
		t.Errorf("error %v, log %q", err, h.log)
	}
}

func TestAStopThatLeavesTheContainerRunningIsAFailure(t *testing.T) {
	h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}, {ID: "other"}}}}
	e := newExecutor(h, Config{})
	h.fail = map[string][]error{"stop": {errors.New("busy")}}
	_, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 2}))
	if reason.Of(err) != reasonKill || !slices.Contains(h.log, "event FailedKillPod error killing pod: busy") {
		t.Errorf("error %v, log %q", err, h.log)
	}
}

func TestWhatEventsHaveToldIsNotAskedAgain(t *testing.T) {
	h := &host{now: podstate.Observed{
		Sandboxes:  []podstate.Sandbox{{ID: "sb", Ready: false}},
		Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}},
	}}
	e := newExecutor(h, Config{})
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StopSandbox, Object: "sb"}, ID: "sb"})); err != nil {
		t.Fatal(err)
	}
	// StopContainer of the fake makes the container Exited, as an event would.
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 2})); err != nil {
		t.Fatal(err)
	}
	if got := calls(h.log); !slices.Equal(got, []string{"stopsandbox sb", "stop r 2s"}) {
		t.Errorf("calls %q", got)
	}
}
