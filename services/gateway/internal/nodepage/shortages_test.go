package nodepage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOfManyDecisionsTheNewestAreShownAndTheRestIsCounted(t *testing.T) {
	now := time.Unix(1000, 0)
	long := strings.Repeat("ü", 10000)
	s := &Shortages{Measured: &now}
	for i := range 100 {
		d := Decision{Why: long, Reclaimed: &Reclaimed{Error: long}, More: 7, Shortage: Shortage{Signal: fmt.Sprint(i)}}
		for range 20 {
			d.Candidates = append(d.Candidates, Candidate{Not: long})
		}
		s.Decisions = append(s.Decisions, d)
		s.Short = append(s.Short, d.Shortage)
	}
	got := s.shownAt(now)
	if len(got.Short) != mostShortages || len(got.Decisions) != mostDecisions || got.More != 100-mostDecisions || got.Decisions[0].Shortage.Signal != "0" {
		t.Errorf("%d short, %d decisions and %d more, the first is %q", len(got.Short), len(got.Decisions), got.More, got.Decisions[0].Shortage.Signal)
	}
	d := got.Decisions[0]
	if len(d.Candidates) != mostCandidates || d.More != 7+20-mostCandidates {
		t.Errorf("%d candidates and %d more", len(d.Candidates), d.More)
	}
	for what, words := range map[string]string{"why": d.Why, "the error": d.Reclaimed.Error, "why not": d.Candidates[0].Not} {
		if len(words) > mostWords+5 || !strings.HasPrefix(words, "ü") || !strings.HasSuffix(words, "ü …") {
			t.Errorf("%s has %d bytes and ends with %q", what, len(words), words[len(words)-8:])
		}
	}
	if s.Decisions[0].Why != long || len(s.Decisions[0].Candidates) != 20 || s.Decisions[0].Reclaimed.Error != long {
		t.Error("what was asked for was changed")
	}
}

func TestAShortageOfLongAgoIsNotShownAsOneOfNow(t *testing.T) {
	now := time.Unix(1000, 0)
	for age, stale := range map[time.Duration]bool{0: false, 29 * time.Second: false, 30 * time.Second: true, time.Hour: true} {
		at := now.Add(-age)
		if got := (&Shortages{Measured: &at}).shownAt(now); got.Stale != stale {
			t.Errorf("after %v: stale is %v", age, got.Stale)
		}
	}
	got := (&Shortages{}).shownAt(now)
	if raw, err := json.Marshal(got); err != nil || string(raw) != `{"short":[],"decisions":[]}` {
		t.Errorf("of what was not measured yet: %s %v", raw, err)
	}
}
