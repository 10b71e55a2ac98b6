// Package server adapts the prober to ProbesService. It owns no state; it must
// never change anything.
package server

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/services/probes/internal/peer"
	"github.com/polylet/polylet/services/probes/internal/prober"
)

// Lister knows the probes that run.
type Lister interface {
	// List returns them in order; an empty namespace or name matches any.
	List(namespace, name string) []prober.View
}

// Server implements ProbesService. See New.
type Server struct {
	probesv1.UnimplementedProbesServiceServer
	lister Lister
}

// New returns a Server over l.
func New(l Lister) *Server { return &Server{lister: l} }

// ListProbes implements ProbesService.
func (s *Server) ListProbes(_ context.Context, req *probesv1.ListProbesRequest) (*probesv1.ListProbesResponse, error) {
	res := &probesv1.ListProbesResponse{}
	for _, v := range s.lister.List(req.GetNamespace(), req.GetName()) {
		p := &probesv1.ProbeState{
			Target:        peer.FromTarget(v.Target),
			Outcome:       peer.FromOutcome(v.Outcome),
			Streak:        int32(v.Streak),
			LastAttemptOk: v.LastOK,
			Message:       v.Message,
		}
		if !v.LastAttempt.IsZero() {
			p.LastAttemptTime = timestamppb.New(v.LastAttempt)
		}
		if !v.NextAttempt.IsZero() {
			p.NextAttemptTime = timestamppb.New(v.NextAttempt)
		}
		res.Probes = append(res.Probes, p)
	}
	return res, nil
}
