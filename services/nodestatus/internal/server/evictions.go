package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
)

// Evictions shows what the node is short of and what was done about it.
type Evictions interface {
	View() evict.View
}

// ListEvictionDecisions implements NodeStatusService.
func (s *Server) ListEvictionDecisions(context.Context, *nodestatusv1.ListEvictionDecisionsRequest) (*nodestatusv1.ListEvictionDecisionsResponse, error) {
	view := s.evictions.View()
	out := &nodestatusv1.ListEvictionDecisionsResponse{Conditions: view.Conditions, SignalsTime: stamp(view.Signals), BeganTime: stamp(view.Began)}
	for _, x := range view.Shortages {
		out.Shortages = append(out.Shortages, shortage(x))
	}
	for _, x := range view.Waits {
		out.Waits = append(out.Waits, shortage(x))
	}
	for i := range view.Decisions {
		out.Decisions = append(out.Decisions, decision(&view.Decisions[i]))
	}
	return out, nil
}

func decision(d *evict.Decision) *nodestatusv1.EvictionDecision {
	out := &nodestatusv1.EvictionDecision{
		Time: stamp(d.Time), FirstTime: stamp(d.First), Count: uint32(d.Count), Shortage: shortage(d.Shortage), //nolint:gosec // A count.
		Outcome: string(d.Outcome), Why: d.Why, LargestFile: d.Held.Largest, MoreCandidates: uint32(d.More), //nolint:gosec // A count of pods.
	}
	if r := d.Reclaimed; r != nil {
		out.Reclaimed = &nodestatusv1.Reclaimed{Containers: r.Containers, Images: r.Images, ImageBytes: r.ImageBytes, Error: r.Error}
	}
	for _, c := range d.Candidates {
		out.Candidates = append(out.Candidates, &nodestatusv1.EvictionCandidate{
			Pod: c.Namespace + "/" + c.Name, Uid: string(c.UID), Usage: c.Usage, Request: c.Request, Exceeds: c.Exceeds, Priority: c.Priority, Not: c.Not,
		})
	}
	if d.Chosen.Name != "" {
		out.Chosen, out.ChosenUid, out.Grace = d.Chosen.Namespace+"/"+d.Chosen.Name, string(d.Chosen.UID), durationpb.New(d.Grace)
	}
	return out
}

func shortage(s evict.Shortage) *nodestatusv1.Shortage {
	return &nodestatusv1.Shortage{Signal: s.Signal, Threshold: s.Threshold, Available: s.Available, Since: stamp(s.Since), Hard: s.Hard, DueTime: stamp(s.Due)}
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
