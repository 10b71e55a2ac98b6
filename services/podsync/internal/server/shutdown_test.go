package server

import (
	"errors"
	"testing"
	"time"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestThatTheMachineGoesDownIsPassedOn(t *testing.T) {
	s := &Server{}
	if _, err := s.SetShutdown(t.Context(), &podsyncv1.SetShutdownRequest{}); !errors.Is(err, rpcerr.ErrUnimplemented) {
		t.Errorf("nobody is there to be told: %v", err)
	}
	var told []bool
	state := RuntimeState{}
	s.deps.State = func() RuntimeState { return state }
	s.deps.Shutdown = func(active bool) { told = append(told, active) }
	for _, active := range []bool{true, false} {
		r, err := s.SetShutdown(t.Context(), &podsyncv1.SetShutdownRequest{Active: active})
		if err != nil {
			t.Fatal(err)
		}
		if r.GetPodsKnown() == active {
			t.Errorf("all pods are known: %v", r.GetPodsKnown())
		}
		state = RuntimeState{SourcesReady: time.Now(), LastRelist: time.Now()}
	}
	if len(told) != 2 || !told[0] || told[1] {
		t.Errorf("told %v", told)
	}
}
