package server

import (
	"errors"
	"testing"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestThatTheMachineGoesDownIsPassedOn(t *testing.T) {
	s := &Server{}
	if _, err := s.SetShutdown(t.Context(), &podsyncv1.SetShutdownRequest{}); !errors.Is(err, rpcerr.ErrUnimplemented) {
		t.Errorf("nobody is there to be told: %v", err)
	}
	var told []bool
	s.deps.Shutdown = func(active bool) { told = append(told, active) }
	for _, active := range []bool{true, false} {
		if _, err := s.SetShutdown(t.Context(), &podsyncv1.SetShutdownRequest{Active: active}); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 2 || !told[0] || told[1] {
		t.Errorf("told %v", told)
	}
}
