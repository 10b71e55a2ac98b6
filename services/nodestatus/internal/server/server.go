// Package server is the gRPC face of nodestatus. It only shows what the parts hold,
// and must never ask the apiserver or another service by itself.
package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/assigned"
	"github.com/polylet/polylet/services/nodestatus/internal/event"
	"github.com/polylet/polylet/services/nodestatus/internal/lease"
	"github.com/polylet/polylet/services/nodestatus/internal/nodelog"
	"github.com/polylet/polylet/services/nodestatus/internal/review"
	"github.com/polylet/polylet/services/nodestatus/internal/status"
)

// Deps is what a Server shows. What is nil is not asked for, but for Lease and Reviews,
// which are nil without an apiserver, and Assigned.
type Deps struct {
	Keeper    *status.Keeper
	Lease     *lease.Keeper
	Events    *event.Sender
	Evictions Evictions
	// Logs is where the node's logs are.
	Logs    *nodelog.Dir
	Reviews *review.Asker
	// Assigned is nil where the cluster is no source of the configuration.
	Assigned *assigned.Keeper
	// AskApiserver says why the apiserver gives no answer; nil without one.
	AskApiserver func(context.Context) error
}

// Server implements NodeStatusService.
type Server struct {
	nodestatusv1.UnimplementedNodeStatusServiceServer
	keeper    *status.Keeper
	lease     *lease.Keeper
	events    *event.Sender
	evictions Evictions
	logs      *nodelog.Dir
	query     *nodelog.Reader
	reviews   *review.Asker
	assigned  *assigned.Keeper
	ask       func(context.Context) error
}

// New returns a Server.
func New(deps Deps) *Server {
	return &Server{
		keeper: deps.Keeper, lease: deps.Lease, events: deps.Events, evictions: deps.Evictions,
		logs: deps.Logs, query: nodelog.NewReader(deps.Logs, nil), reviews: deps.Reviews, assigned: deps.Assigned, ask: deps.AskApiserver,
	}
}

// GetNode implements NodeStatusService.
func (s *Server) GetNode(context.Context, *nodestatusv1.GetNodeRequest) (*nodestatusv1.GetNodeResponse, error) {
	view := s.keeper.View()
	if view.Node == nil {
		return nil, fmt.Errorf("%w: the Node is not made yet, facts are being gathered; ask again in a few seconds", rpcerr.ErrUnavailable)
	}
	data, err := view.Node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the Node: %w", err)
	}
	out := &nodestatusv1.GetNodeResponse{Node: data, Registered: view.Registered, LastError: view.LastError}
	if !view.LastReport.IsZero() {
		out.LastPatchTime = timestamppb.New(view.LastReport)
	}
	return out, nil
}

// GetLease implements NodeStatusService.
func (s *Server) GetLease(context.Context, *nodestatusv1.GetLeaseRequest) (*nodestatusv1.GetLeaseResponse, error) {
	if s.lease == nil {
		return nil, fmt.Errorf("%w: the node runs without an apiserver, so it has no lease", rpcerr.ErrPrecondition)
	}
	stands := s.lease.Status()
	out := &nodestatusv1.GetLeaseResponse{DurationSeconds: int32(s.lease.Duration().Seconds()), LastError: stands.LastError}
	if !stands.RenewTime.IsZero() {
		out.RenewTime = timestamppb.New(stands.RenewTime)
	}
	return out, nil
}

// ListRecentEvents implements NodeStatusService.
func (s *Server) ListRecentEvents(context.Context, *nodestatusv1.ListRecentEventsRequest) (*nodestatusv1.ListRecentEventsResponse, error) {
	out := &nodestatusv1.ListRecentEventsResponse{}
	for _, e := range s.events.Recent() {
		out.Events = append(out.Events, &nodestatusv1.NodeEvent{
			Time: timestamppb.New(e.At), Type: e.Type, Reason: e.Reason, Message: e.Message, Count: uint32(e.Count),
		})
	}
	return out, nil
}
