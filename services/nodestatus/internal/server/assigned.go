package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// askWithin bounds a question to the apiserver.
const askWithin = 2 * time.Second

// AskApiserver implements NodeStatusService.
func (s *Server) AskApiserver(ctx context.Context, _ *nodestatusv1.AskApiserverRequest) (*nodestatusv1.AskApiserverResponse, error) {
	if s.ask == nil {
		return nil, fmt.Errorf("%w: the node runs without an apiserver", rpcerr.ErrPrecondition)
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	out := &nodestatusv1.AskApiserverResponse{}
	if err := s.ask(ctx); err != nil {
		out.Error = err.Error()
	}
	return out, nil
}

// WatchAssignedConfiguration implements NodeStatusService.
func (s *Server) WatchAssignedConfiguration(_ *nodestatusv1.WatchAssignedConfigurationRequest, stream grpc.ServerStreamingServer[nodestatusv1.WatchAssignedConfigurationResponse]) error {
	if s.assigned == nil {
		return fmt.Errorf("%w: the cluster is no source of this node's configuration: start nodestatus with --dynamic-config-dir and a kubeconfig", rpcerr.ErrPrecondition)
	}
	ctx := stream.Context()
	sub, err := s.assigned.Subscribe(ctx)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		frame, err := sub.Next(ctx)
		if err != nil {
			return ctx.Err()
		}
		resp := &nodestatusv1.WatchAssignedConfigurationResponse{Epoch: frame.Epoch, Revision: frame.Revision, Snapshot: frame.Snapshot}
		for _, d := range frame.Changed {
			resp.Assigned = &nodestatusv1.AssignedConfiguration{
				Namespace: d.Namespace, Name: d.Name, Key: d.Key, Uid: d.UID, ResourceVersion: d.ResourceVersion, Document: d.Text,
			}
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}
