package server

import (
	"fmt"

	"google.golang.org/grpc"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

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
