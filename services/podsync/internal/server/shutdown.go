package server

import (
	"context"
	"fmt"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// SetShutdown implements PodSyncService.
func (s *Server) SetShutdown(_ context.Context, req *podsyncv1.SetShutdownRequest) (*podsyncv1.SetShutdownResponse, error) {
	if s.deps.Shutdown == nil {
		return nil, fmt.Errorf("%w: this podsync goes by the Node alone", rpcerr.ErrUnimplemented)
	}
	s.deps.Shutdown(req.GetActive())
	return &podsyncv1.SetShutdownResponse{PodsKnown: s.podsKnown()}, nil
}

// podsKnown says whether all sources of pods have been seen, and the runtime has.
func (s *Server) podsKnown() bool {
	state := s.deps.State()
	return !state.SourcesReady.IsZero() && !state.LastRelist.IsZero()
}
