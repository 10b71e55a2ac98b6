package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
	"github.com/polylet/polylet/services/podsync/internal/report/explain"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Explainer says what pods wait for and what happened to them.
type Explainer interface {
	Explain(uid types.UID) (podcache.Explanation, bool)
	// Gone returns the newest pod of this name that is gone and still known.
	Gone(namespace, name string) (types.UID, bool)
	// InDoubt says whether a static pod goes on that is not looked after.
	InDoubt(namespace, name string) bool
}

// Recent are the newest events; *event.Recorder has it.
type Recent interface {
	Recent() []event.Recorded
}

// ExplainPod implements PodSyncService.
func (s *Server) ExplainPod(_ context.Context, req *podsyncv1.ExplainPodRequest) (*podsyncv1.ExplainPodResponse, error) {
	pod, err := s.find(req.GetPod())
	if err != nil && !errors.Is(err, rpcerr.ErrInvalid) && s.deps.Explain != nil {
		return s.explainGone(req.GetPod(), err)
	}
	if err != nil {
		return nil, err
	}
	resp := &podsyncv1.ExplainPodResponse{Pod: refOf(pod.Pod.UID, pod.Pod.Namespace, pod.Pod.Name), Phase: string(pod.Status.Phase)}
	resp.Reason, resp.Message = explain.Verdict(&pod.Status)
	if s.deps.Explain == nil {
		return resp, nil
	}
	why, _ := s.deps.Explain.Explain(pod.Pod.UID)
	resp.Waits = waitMessages(explain.Waits(why, s.trouble(pod.Pod.UID)))
	addTimeline(resp, why)
	return resp, nil
}

// explainGone explains a pod that has ended; missing is the error if it is not known.
func (s *Server) explainGone(ref *podsyncv1.PodRef, missing error) (*podsyncv1.ExplainPodResponse, error) {
	if s.deps.Explain.InDoubt(ref.GetNamespace(), ref.GetName()) {
		return nil, fmt.Errorf("%w: static pod %q goes on, but nobody probes or restarts it: no manifest that can be read is its own; correct it, polylet status names those that cannot be read; without one it is ended when all can be",
			rpcerr.ErrPrecondition, ref.GetName())
	}
	uid, ok := types.UID(ref.GetUid()), ref.GetUid() != ""
	if !ok {
		uid, ok = s.deps.Explain.Gone(ref.GetNamespace(), ref.GetName())
	}
	if !ok {
		return nil, missing
	}
	why, ok := s.deps.Explain.Explain(uid)
	if !ok || why.Namespace != ref.GetNamespace() || why.Name != ref.GetName() {
		return nil, missing
	}
	resp := &podsyncv1.ExplainPodResponse{Pod: refOf(uid, why.Namespace, why.Name), GoneTime: stamp(why.Gone), Waits: waitMessages(explain.Waits(why, nil))}
	addTimeline(resp, why)
	return resp, nil
}

// ListWaits implements PodSyncService.
func (s *Server) ListWaits(context.Context, *podsyncv1.ListWaitsRequest) (*podsyncv1.ListWaitsResponse, error) {
	resp := &podsyncv1.ListWaitsResponse{}
	if s.deps.Explain == nil {
		return resp, nil
	}
	for _, pod := range s.deps.Pods.List() {
		why, ok := s.deps.Explain.Explain(pod.Pod.UID)
		if !ok {
			continue
		}
		if waits := waitMessages(explain.Waits(why, s.trouble(pod.Pod.UID))); len(waits) > 0 {
			resp.Pods = append(resp.Pods, &podsyncv1.PodWaits{Pod: refOf(pod.Pod.UID, pod.Pod.Namespace, pod.Pod.Name), Waits: waits})
		}
	}
	slices.SortFunc(resp.Pods, func(a, b *podsyncv1.PodWaits) int {
		return cmp.Or(cmp.Compare(a.Pod.GetNamespace(), b.Pod.GetNamespace()), cmp.Compare(a.Pod.GetName(), b.Pod.GetName()))
	})
	return resp, nil
}

// ListRecentEvents implements PodSyncService.
func (s *Server) ListRecentEvents(context.Context, *podsyncv1.ListRecentEventsRequest) (*podsyncv1.ListRecentEventsResponse, error) {
	resp := &podsyncv1.ListRecentEventsResponse{}
	if s.deps.Events == nil {
		return resp, nil
	}
	for _, e := range s.deps.Events.Recent() {
		resp.Events = append(resp.Events, &podsyncv1.RecentEvent{
			Time: stamp(e.At), Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, Container: e.Container,
			Type: e.Type, Reason: e.Reason, Message: e.Message, Count: uint32(min(e.Count, 1<<31)),
		})
	}
	return resp, nil
}

func (s *Server) trouble(uid types.UID) *explain.Trouble {
	if s.deps.Trouble == nil {
		return nil
	}
	return s.deps.Trouble(uid)
}

func waitMessages(waits []podstate.Wait) []*podsyncv1.Wait {
	out := make([]*podsyncv1.Wait, 0, len(waits))
	for _, w := range waits {
		out = append(out, &podsyncv1.Wait{
			Kind: w.Kind, Object: w.Object, Reason: w.Reason, Advice: w.Advice, Since: stamp(w.Since), RetryTime: stamp(w.Retry),
		})
	}
	return out
}

func addTimeline(resp *podsyncv1.ExplainPodResponse, why podcache.Explanation) {
	resp.DroppedEntries = uint32(min(why.Dropped, 1<<31))
	for i := range why.Timeline {
		resp.Timeline = append(resp.Timeline, entryMessage(&why.Timeline[i]))
	}
}

func entryMessage(e *timeline.Entry) *podsyncv1.TimelineEntry {
	m := &podsyncv1.TimelineEntry{
		Time: stamp(e.At), Step: e.What, Object: e.Object, Error: e.Error, Detail: e.Detail,
		Count: uint32(min(e.Count, 1<<31)), FirstTime: stamp(e.First), Running: e.Running,
	}
	if e.Took > 0 {
		m.Duration = durationpb.New(e.Took)
	}
	return m
}
