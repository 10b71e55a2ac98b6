package server

import (
	"context"
	"fmt"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// SetShutdown implements PodSyncService.
func (s *Server) SetShutdown(_ context.Context, req *podsyncv1.SetShutdownRequest) (*podsyncv1.SetShutdownResponse, error) {
	if s.deps.Shutdown == nil {
		return nil, fmt.Errorf("%w: this podsync goes by the Node alone", rpcerr.ErrUnimplemented)
	}
	s.deps.Shutdown(req.GetActive())
	mounted := s.mounted()
	return &podsyncv1.SetShutdownResponse{PodsKnown: s.podsKnown(), PodsWithVolumes: uint32(len(mounted)), UidsWithVolumes: mounted}, nil
}

// mounted are the UIDs of the pods that have ended and have volumes that are not taken down.
func (s *Server) mounted() (uids []string) {
	for _, pod := range s.deps.Pods.List() {
		if podutil.TerminalPhase(pod.WithStatus().Status.Phase) && s.deps.Table.HasVolumes(pod.Pod.UID) {
			uids = append(uids, string(pod.Pod.UID))
		}
	}
	return uids
}

// podsKnown says whether all sources of pods have been seen, and the runtime has.
func (s *Server) podsKnown() bool {
	state := s.deps.State()
	return !state.SourcesReady.IsZero() && !state.LastRelist.IsZero()
}
