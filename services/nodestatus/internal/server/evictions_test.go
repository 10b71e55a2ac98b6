package server

import (
	"testing"
	"time"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
)

type evictions evict.View

func (e evictions) View() evict.View { return evict.View(e) }

func TestADecisionIsShownWithAllThatItWasMadeFrom(t *testing.T) {
	at := time.Unix(1000, 0)
	short := evict.Shortage{Signal: "memory.available", Threshold: "100Mi", Available: "50Mi", Since: at, Hard: true}
	waits := evict.Shortage{Signal: "pid.available", Since: at, Due: at.Add(time.Minute)}
	s := New(Deps{Evictions: evictions{Conditions: []string{"MemoryPressure"}, Shortages: []evict.Shortage{short}, Waits: []evict.Shortage{waits}, Began: at, Decisions: []evict.Decision{
		{
			Time: at.Add(time.Second), First: at, Count: 2, Shortage: short, Outcome: evict.Evicted, Why: "it uses most", Reclaimed: &evict.ReclaimResult{Images: 3},
			Candidates: []evict.Considered{{Pod: evict.Pod{Namespace: "a", Name: "b", UID: "u"}, Usage: 7, Not: "static"}}, More: 4,
			Chosen: evict.Pod{Namespace: "a", Name: "b", UID: "u"}, Grace: time.Second,
		},
		{Shortage: short, Outcome: evict.Nobody, Count: 1},
	}}})
	got, err := s.ListEvictionDecisions(t.Context(), &nodestatusv1.ListEvictionDecisionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	d := got.GetDecisions()[0]
	if got.GetSignalsTime() != nil || got.GetConditions()[0] != "MemoryPressure" || got.GetShortages()[0].GetAvailable() != "50Mi" || !got.GetShortages()[0].GetHard() {
		t.Errorf("%v", got)
	}
	if w := got.GetWaits()[0]; w.GetSignal() != "pid.available" || !w.GetDueTime().AsTime().Equal(at.Add(time.Minute)) || got.GetShortages()[0].GetDueTime() != nil || !got.GetBeganTime().AsTime().Equal(at) {
		t.Errorf("%v", got)
	}
	if d.GetChosen() != "a/b" || d.GetChosenUid() != "u" || d.GetGrace().AsDuration() != time.Second || d.GetReclaimed().GetImages() != 3 || d.GetCount() != 2 ||
		!d.GetFirstTime().AsTime().Equal(at) || d.GetMoreCandidates() != 4 || d.GetCandidates()[0].GetNot() != "static" || d.GetCandidates()[0].GetUsage() != 7 {
		t.Errorf("%v", d)
	}
	if other := got.GetDecisions()[1]; other.GetChosen() != "" || other.GetReclaimed() != nil || other.GetOutcome() != "nobody" {
		t.Errorf("%v", other)
	}
}
