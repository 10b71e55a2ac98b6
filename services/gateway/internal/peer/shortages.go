package peer

import (
	"context"
	"slices"
	"strings"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/services/gateway/internal/nodepage"
)

// Shortages implements nodepage.Peers.
func (p *Page) Shortages(ctx context.Context) (*nodepage.Shortages, error) {
	resp, err := p.node.ListEvictionDecisions(ctx, &nodestatusv1.ListEvictionDecisionsRequest{})
	if err != nil {
		return nil, err
	}
	out := &nodepage.Shortages{Measured: stamp(resp.GetSignalsTime()), Began: stamp(resp.GetBeganTime())}
	for _, s := range slices.Concat(resp.GetShortages(), resp.GetWaits()) {
		out.Short = append(out.Short, shortageOf(s))
	}
	for _, d := range slices.Backward(resp.GetDecisions()) {
		out.Decisions = append(out.Decisions, decisionOf(d))
	}
	return out, nil
}

func shortageOf(s *nodestatusv1.Shortage) nodepage.Shortage {
	return nodepage.Shortage{
		Signal: s.GetSignal(), Limit: strings.HasSuffix(s.GetSignal(), ".limit"), Threshold: s.GetThreshold(), Available: s.GetAvailable(),
		Hard: s.GetHard(), Since: stamp(s.GetSince()), Due: stamp(s.GetDueTime()),
	}
}

func decisionOf(d *nodestatusv1.EvictionDecision) nodepage.Decision {
	signal := d.GetShortage().GetSignal()
	out := nodepage.Decision{
		Time: d.GetTime().AsTime(), First: stamp(d.GetFirstTime()), Count: d.GetCount(), Shortage: shortageOf(d.GetShortage()),
		Counted: signal == "pid.available" || strings.HasSuffix(signal, ".inodesFree"),
		Outcome: d.GetOutcome(), Why: d.GetWhy(), Grace: d.GetGrace().AsDuration().Seconds(), More: d.GetMoreCandidates(),
	}
	if r := d.GetReclaimed(); r != nil {
		out.Reclaimed = &nodepage.Reclaimed{Containers: r.GetContainers(), Images: r.GetImages(), ImageBytes: r.GetImageBytes(), Error: r.GetError()}
	}
	if d.GetChosen() != "" {
		chosen := podName(d.GetChosen(), d.GetChosenUid())
		out.Chosen = &chosen
	}
	for _, c := range d.GetCandidates() {
		out.Candidates = append(out.Candidates, nodepage.Candidate{
			PodName: podName(c.GetPod(), c.GetUid()), Usage: c.GetUsage(), Request: c.GetRequest(), Exceeds: c.GetExceeds(), Priority: c.GetPriority(), Not: c.GetNot(),
		})
	}
	return out
}

// podName takes namespace/name apart.
func podName(pod, uid string) nodepage.PodName {
	namespace, name, _ := strings.Cut(pod, "/")
	return nodepage.PodName{Namespace: namespace, Name: name, UID: uid}
}
