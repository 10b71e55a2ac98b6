package sim

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus"
)

// goesDown has the machine go down after a minute; the pod called other is a critical one.
func goesDown(more ...func(s *scenario)) func(int64) *scenario {
	begins := at(time.Minute, "the machine goes down", func(w *world) { w.shutLocked(time.Hour) })
	return quiet(append([]func(s *scenario){begins, hog(func(p *pod) { p.takes = 3 * time.Second }), func(s *scenario) {
		s.groups = nodestatus.ShutdownGroups(nil, 30*time.Second, 10*time.Second)
		s.pods[1].important(2_000_000_000)
	}}, more...)...)
}

func calledOff() func(int64) *scenario {
	return goesDown(at(61*time.Second, "it is called off", func(w *world) { w.callOffLocked() }))
}

// diesInIt has nodestatus die while the first pods end.
func diesInIt() func(int64) *scenario {
	return goesDown(func(s *scenario) {
		s.add(61*time.Second, "nodestatus is killed", func(w *world) { w.lives.Go(func() { w.restart(2 * time.Second) }) })
	})
}

func apiserverGoes() func(int64) *scenario {
	return goesDown(wrong(50*time.Second, 18*time.Second, "apiserver", func(w *world, is bool) {
		if w.partitioned = is; is {
			w.api.Partition(fakeapiserver.Refuse)
		} else {
			w.api.Heal()
		}
	}))
}

func TestAShutdownInWhichNodestatusKeepsItsPromisesIsFoundRight(t *testing.T) {
	for name, of := range map[string]func(int64) *scenario{
		"the machine goes down":                goesDown(),
		"it is called off":                     calledOff(),
		"it goes down again":                   goesDown(at(61*time.Second, "it is called off", func(w *world) { w.callOffLocked() }), at(100*time.Second, "again", func(w *world) { w.shutLocked(0) })),
		"nodestatus dies in it":                diesInIt(),
		"podsync dies in it":                   goesDown(at(61*time.Second, "podsync is killed", func(w *world) { w.killPodsyncLocked(2 * time.Second) })),
		"the apiserver is away for a while":    apiserverGoes(),
		"a pod that refuses to die":            goesDown(hog(func(p *pod) { p.late = time.Hour })),
		"volumes that do not go":               goesDown(hog(func(p *pod) { p.emptying = time.Hour })),
		"memory is short, too":                 goesDown(takesAt(59*time.Second, "hog", mostMemory)),
		"the machine waits for half as long":   goesDown(hog(func(p *pod) { p.takes = time.Hour }), at(59*time.Second, "sooner", func(w *world) { w.shutLocked(15 * time.Second) })),
		"a machine without graceful shutdowns": goesDown(func(s *scenario) { s.groups = nil }),
	} {
		t.Run(name, func(t *testing.T) { finds(t, sabotage{scenario: of}, "") })
	}
}

func TestEveryBrokenPromiseOfAShutdownIsFound(t *testing.T) {
	for _, tc := range []struct {
		name string
		shot sabotage
		want string
	}{
		{"a critical pod ends first", sabotage{scenario: goesDown(), call: criticalFirst()}, "was stopped before pod hog"},
		{"a pod ends before volumes are taken down", sabotage{scenario: goesDown(hog(func(p *pod) { p.emptying = 8 * time.Second })), call: setShutdowns(func(_ *world, r *podsyncv1.SetShutdownResponse) {
			r.PodsWithVolumes, r.UidsWithVolumes = 0, nil
		})}, "was stopped before the volumes of pod hog"},
		{"the machine goes down before its pods", sabotage{scenario: goesDown(), hasty: true}, "has not ended nor had its time"},
		{"the machine is never let go", sabotage{scenario: goesDown(), deaf: true}, "is kept from going down"},
		{"the machine goes down before the apiserver has heard", sabotage{scenario: apiserverGoes(), call: allHeard()}, "the apiserver has not heard of it"},
		{"that it is called off is not told", sabotage{scenario: calledOff(), call: opens(false)}, "that podsync admits no pod: true"},
		{"pods are admitted", sabotage{scenario: goesDown(hog(func(p *pod) { p.late = time.Hour })), call: opens(true)}, "that podsync admits no pod: false"},
		{"who died in it forgets pods", sabotage{scenario: diesInIt(), call: swallowed(func(w *world, _ *podsyncv1.StopPodRequest) bool { return w.run.number > 1 })}, "was never stopped"},
		{"pods end after it was called off", sabotage{scenario: calledOff(), call: lateStop()}, "though the shutdown was called off"},
		{"pods have other time than their group", sabotage{scenario: goesDown(), call: stops(func(r *podsyncv1.StopPodRequest) { r.Grace = durationpb.New(time.Hour) })}, "was given 1h0m0s in a shutdown"},
		{"another message", sabotage{scenario: goesDown(), call: stops(func(r *podsyncv1.StopPodRequest) { r.Message = "so" })}, `was stopped in a shutdown with "Terminated": "so"`},
	} {
		t.Run(tc.name, func(t *testing.T) { finds(t, tc.shot, tc.want) })
	}
}

// criticalFirst has the critical pod stopped with the first.
func criticalFirst() hook {
	return onStop(func(ctx context.Context, _ *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		other := proto.CloneOf(r)
		other.Pod.Name, other.Pod.Uid, other.Grace = "other", "uid-other", durationpb.New(10*time.Second)
		_, _ = do(ctx, other)
		return do(ctx, r)
	})
}

// lateStop makes each call once more some seconds later.
func lateStop() hook {
	return onStop(func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		again := proto.CloneOf(r)
		w.lives.Go(func() {
			pause(context.Background(), 2*time.Second)
			_, _ = do(context.Background(), again)
		})
		return do(ctx, r)
	})
}

// setShutdowns changes what podsync answers when it is told of a shutdown.
func setShutdowns(change func(w *world, r *podsyncv1.SetShutdownResponse)) hook {
	return func(ctx context.Context, w *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		if r, ok := out.(*podsyncv1.SetShutdownResponse); ok && err == nil {
			change(w, r)
		}
		return out, err
	}
}

// opens swallows that podsync is closed, or that it is opened.
func opens(closing bool) hook {
	return func(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
		if r, ok := c.req.(*podsyncv1.SetShutdownRequest); ok && r.GetActive() == closing {
			return &podsyncv1.SetShutdownResponse{PodsKnown: true}, nil
		}
		return do(ctx, c.req)
	}
}

// allHeard has podsync say that the apiserver has heard of all ends.
func allHeard() hook {
	return func(ctx context.Context, w *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		w.mu.Lock()
		defer w.mu.Unlock()
		if r, ok := out.(*podsyncv1.ListDesiredPodsResponse); ok && err == nil && w.goingLocked() {
			r.Pods, r.Unchanged = nil, false
		}
		return out, err
	}
}
