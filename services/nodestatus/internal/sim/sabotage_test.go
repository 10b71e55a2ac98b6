package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/raced"
)

// sabotage makes nodestatus do one thing wrong.
type sabotage struct {
	// scenario takes the place of the seed's.
	scenario func(seed int64) *scenario
	// call stands between nodestatus and its peers; do makes the call.
	call hook
	// stream stands between nodestatus and what a stream tells next.
	stream func(ctx context.Context, w *world, next answers) (proto.Message, error)
	// decisions changes what nodestatus tells of its decisions.
	decisions func(r *nodestatusv1.ListEvictionDecisionsResponse)
	// hasty lets a shutdown go on at once, deaf never.
	hasty, deaf bool
}

type (
	hook    = func(ctx context.Context, w *world, c call, do calls) (proto.Message, error)
	calls   = func(ctx context.Context, req proto.Message) (proto.Message, error)
	answers = func(ctx context.Context) (proto.Message, error)
)

// finds runs a sabotage and asserts that the judge says what it should: nothing when want is
// empty.
func finds(t *testing.T, shot sabotage, want string) {
	t.Helper()
	if *oneSeed != 0 || raced.Enabled {
		t.Skip("one seed is told, or races are looked for, which seeds show as well")
	}
	found := strings.Join(simulate(t, 1, &shot), "\n")
	switch {
	case want == "" && found != "":
		t.Errorf("found %s", found)
	case !strings.Contains(found, want):
		t.Errorf("not found: %q; found %q", want, found)
	}
}

// quiet is a scenario without faults: a node with some pods, of which one is static.
func quiet(more ...func(s *scenario)) func(int64) *scenario {
	return func(int64) *scenario {
		s := &scenario{transition: time.Minute, longestGrace: 20 * time.Second, long: 6 * time.Minute}
		s.machine = &machine{capacity: [goods]uint64{memory: 10000 * mi, pids: 10000, nodeBytes: 100000 * mi, nodeInodes: 1e6}}
		s.machine.other = [goods]uint64{memory: 1000 * mi, pids: 300, nodeBytes: 20000 * mi, nodeInodes: 1e5}
		s.thresholds = []threshold{
			{signal: "memory.available", number: 500 * mi},
			{signal: "nodefs.available", percent: 10},
			{signal: "nodefs.inodesFree", percent: 5},
			{signal: "pid.available", percent: 10},
		}
		for i, name := range []string{"hog", "other", "static"} {
			p := newPod(name)
			p.first = use{memory: uint64(300-10*i) * mi, pids: 20, volume: 300 * mi, logs: 10 * mi, layer: 100 * mi, files: 500, layerFiles: 100}
			s.pods = append(s.pods, p)
		}
		s.pods[2].static()
		for _, f := range more {
			f(s)
		}
		slices.SortStableFunc(s.acts, func(a, b act) int { return int(a.at - b.at) })
		return s
	}
}

// at adds what is done after a time.
func at(when time.Duration, what string, do func(w *world)) func(s *scenario) {
	return func(s *scenario) { s.add(when, what, func(w *world) { w.set(func() { do(w) }) }) }
}

// wrong has something be wrong from a time on for so long.
func wrong(when, long time.Duration, kind string, set func(w *world, is bool)) func(s *scenario) {
	return at(when, kind, func(w *world) {
		set(w, true)
		w.fault(kind, long+recovery)
		time.AfterFunc(long, func() { w.set(func() { set(w, false) }) })
	})
}

// takes has a pod use more after a minute.
func takes(name string, change func(u *use)) func(s *scenario) {
	return takesAt(time.Minute, name, change)
}

func takesAt(when time.Duration, name string, change func(u *use)) func(s *scenario) {
	return at(when, name+" takes more", func(w *world) {
		u := w.machine.uses[name]
		change(&u)
		w.machine.uses[name] = u
	})
}

func mostMemory(u *use)  { u.memory += 7700 * mi }
func mostOfDisk(u *use)  { u.volume += 72000 * mi }
func mostRemoved(u *use) { u.removed += 72000 * mi }
func mostInodes(u *use)  { u.files += 870000 }
func mostPIDs(u *use)    { u.pids += 9000 }

// hog changes the pod that is to go.
func hog(change func(p *pod)) func(s *scenario) {
	return func(s *scenario) { change(s.pods[0]) }
}

// soft adds a soft threshold of memory.
func soft(s *scenario) {
	s.thresholds = append(s.thresholds, threshold{signal: "memory.available", percent: 12, soft: true, grace: time.Minute})
}

// onStop stands between nodestatus and calls to stop a pod.
func onStop(f func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error)) hook {
	return func(ctx context.Context, w *world, c call, do calls) (proto.Message, error) {
		if r, ok := c.req.(*podsyncv1.StopPodRequest); ok {
			return f(ctx, w, r, do)
		}
		return do(ctx, c.req)
	}
}

// stops changes calls to stop a pod.
func stops(change func(r *podsyncv1.StopPodRequest)) hook {
	return onStop(func(ctx context.Context, _ *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		change(r)
		return do(ctx, r)
	})
}

// instead has another pod stopped.
func instead(name string) hook {
	return stops(func(r *podsyncv1.StopPodRequest) { r.Pod.Name, r.Pod.Uid = name, "uid-"+name })
}

// and makes a second call after each to stop a pod.
func and(change func(r *podsyncv1.StopPodRequest)) hook {
	return onStop(func(ctx context.Context, _ *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		out, err := do(ctx, r)
		r = proto.CloneOf(r)
		change(r)
		_, _ = do(ctx, r)
		return out, err
	})
}

// swallowed is not called, and is said to be done.
func swallowed(when func(w *world, r *podsyncv1.StopPodRequest) bool) hook {
	return onStop(func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		w.mu.Lock()
		is := when(w, r)
		w.mu.Unlock()
		if is {
			return &podsyncv1.StopPodResponse{}, nil
		}
		return do(ctx, r)
	})
}

// afterFirst swallows all calls but the first.
func afterFirst() hook {
	calls := 0
	return swallowed(func(*world, *podsyncv1.StopPodRequest) bool { calls++; return calls > 1 })
}

// pressures changes what podsync is told.
func pressures(change func(conditions []string) []string) hook {
	return func(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
		if r, ok := c.req.(*podsyncv1.SetPressureRequest); ok {
			r.Conditions = change(r.Conditions)
		}
		return do(ctx, c.req)
	}
}

// summaries changes what stats says when it is asked.
func summaries(change func(w *world, s *statsapi.Summary, r *statsv1.GetSummaryResponse)) hook {
	return func(ctx context.Context, w *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		if r, ok := out.(*statsv1.GetSummaryResponse); ok && err == nil {
			s := &statsapi.Summary{}
			w.must(json.Unmarshal(r.GetSummaryJson(), s))
			change(w, s, r)
			r.SummaryJson, err = json.Marshal(s)
		}
		return out, err
	}
}

// byOldFigures has nodestatus go by what a stats that is dead said last, as if it were new.
func byOldFigures() (hook, func(ctx context.Context, w *world, next answers) (proto.Message, error)) {
	last := map[string]proto.Message{}
	call := func(ctx context.Context, w *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		if c.method != "GetSummary" {
			return out, err
		}
		if kind := fmt.Sprint(c.req.(*statsv1.GetSummaryRequest).GetOnlyCpuAndMemory()); err == nil {
			last[kind] = proto.Clone(out)
		} else if old := last[kind]; old != nil {
			r, s := proto.Clone(old).(*statsv1.GetSummaryResponse), &statsapi.Summary{}
			w.must(json.Unmarshal(r.GetSummaryJson(), s))
			s.Node.Memory.Time.Time = time.Now()
			r.SummaryJson, err = json.Marshal(s)
			return r, err
		}
		return out, err
	}
	stream := func(ctx context.Context, _ *world, next answers) (proto.Message, error) {
		out, err := next(ctx)
		if f, ok := out.(*statsv1.WatchSignalsResponse); ok && err == nil {
			last["frame"] = f
		} else if old, ok := last["frame"].(*statsv1.WatchSignalsResponse); ok && err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "connection ended") {
			old = proto.CloneOf(old)
			for _, s := range old.GetSignals() {
				s.Time.Seconds, s.Time.Nanos = time.Now().Unix(), 0
			}
			if pause(ctx, time.Second) {
				return old, nil
			}
		}
		return out, err
	}
	return call, stream
}

// unseen tells of filesystems that do not answer as if they had nothing left.
func unseen() (hook, func(ctx context.Context, w *world, next answers) (proto.Message, error)) {
	call := summaries(func(w *world, s *statsapi.Summary, _ *statsv1.GetSummaryResponse) {
		if s.Node.Fs == nil && s.Node.Rlimit != nil {
			s.Node.Fs = &statsapi.FsStats{Time: s.Node.Memory.Time, AvailableBytes: number(uint64(0)), CapacityBytes: number(w.machine.capacity[nodeBytes])}
		}
	})
	stream := func(ctx context.Context, w *world, next answers) (proto.Message, error) {
		out, err := next(ctx)
		if f, ok := out.(*statsv1.WatchSignalsResponse); ok && err == nil && len(f.GetSignals()) < len(w.signals()) {
			f.Signals = append(f.Signals, &statsv1.Signal{Name: "nodefs.available", Capacity: w.machine.capacity[nodeBytes], Time: f.GetSignals()[0].GetTime()})
		}
		return out, err
	}
	return call, stream
}

// tooEarly has a pod stopped for a soft threshold as soon as podsync hears of it.
func tooEarly() hook {
	done := false
	return func(ctx context.Context, w *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		if r, ok := c.req.(*podsyncv1.SetPressureRequest); ok && len(r.GetConditions()) > 0 && !done {
			done = true
			w.mu.Lock()
			k := w.judge.marks[slices.IndexFunc(w.judge.marks, func(k *mark) bool { return k.soft })]
			message := fmt.Sprintf("The node was low on resource: memory. Threshold quantity: %d, available: %d. ", k.need, w.machine.left(memory))
			w.mu.Unlock()
			_, _ = do(ctx, &podsyncv1.StopPodRequest{
				Pod: &podsyncv1.PodRef{Namespace: namespace, Name: "hog", Uid: "uid-hog"}, Reason: "Evicted", Message: message, Grace: durationpb.New(20 * time.Second),
			})
		}
		return out, err
	}
}
