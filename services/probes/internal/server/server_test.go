package server

import (
	"testing"
	"time"

	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/services/probes/internal/probe"
	"github.com/polylet/polylet/services/probes/internal/prober"
)

// lister answers with views and keeps what it was asked.
type lister struct {
	views           []prober.View
	namespace, name string
}

func (l *lister) List(namespace, name string) []prober.View {
	l.namespace, l.name = namespace, name
	return l.views
}

func TestProbesAreListedAsTheyStand(t *testing.T) {
	at := time.Unix(1000, 0)
	l := &lister{views: []prober.View{
		{
			Target:  probe.Target{Key: probe.Key{PodUID: "u", Container: "c", Type: probe.Readiness}, Namespace: "ns", Name: "pod"},
			Outcome: probe.Failure, Streak: 4, LastAttempt: at, NextAttempt: at.Add(time.Second), Message: "refused",
		},
		{Target: probe.Target{Key: probe.Key{PodUID: "u", Container: "c", Type: probe.Liveness}}},
	}}
	res, err := New(l).ListProbes(t.Context(), &probesv1.ListProbesRequest{Namespace: "ns", Name: "pod"})
	if err != nil || len(res.GetProbes()) != 2 {
		t.Fatalf("%v %v", res, err)
	}
	if l.namespace != "ns" || l.name != "pod" {
		t.Errorf("asked for %q/%q", l.namespace, l.name)
	}
	failing, held := res.GetProbes()[0], res.GetProbes()[1]
	if failing.GetTarget().GetKey().GetContainer() != "c" || failing.GetStreak() != 4 || failing.GetMessage() != "refused" || failing.GetLastAttemptOk() {
		t.Errorf("%v", failing)
	}
	if !failing.GetLastAttemptTime().AsTime().Equal(at) || !failing.GetNextAttemptTime().AsTime().Equal(at.Add(time.Second)) {
		t.Errorf("times of attempts: %v", failing)
	}
	if held.GetLastAttemptTime() != nil || held.GetNextAttemptTime() != nil {
		t.Errorf("a probe that was never tried, and is on hold, has times: %v", held)
	}
}
