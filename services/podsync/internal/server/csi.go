package server

import (
	"google.golang.org/grpc"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
)

// WatchCSIDrivers implements PodSyncService.
func (s *Server) WatchCSIDrivers(r *podsyncv1.WatchCSIDriversRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchCSIDriversResponse]) error {
	if s.deps.CSIDrivers == nil {
		return s.UnimplementedPodSyncServiceServer.WatchCSIDrivers(r, stream)
	}
	ctx := stream.Context()
	sub := s.deps.CSIDrivers.Subscribe(ctx)
	defer sub.Close()
	for {
		frame, err := sub.Next(ctx)
		if err != nil {
			return ctx.Err()
		}
		if err := stream.Send(csiDriversFrame(frame)); err != nil {
			return err
		}
	}
}

func csiDriversFrame(frame watch.Frame[string, csi.State]) *podsyncv1.WatchCSIDriversResponse {
	resp := &podsyncv1.WatchCSIDriversResponse{Epoch: frame.Epoch, Revision: frame.Revision, Snapshot: frame.Snapshot}
	for _, d := range frame.Changed {
		resp.Drivers = append(resp.Drivers, &podsyncv1.CSIDriver{
			Name: d.Name, Gone: d.Gone, NodeId: d.NodeID, Topology: d.Topology, MaxVolumes: d.MaxVolumes,
		})
	}
	return resp
}

// WatchVolumesInUse implements PodSyncService.
func (s *Server) WatchVolumesInUse(r *podsyncv1.WatchVolumesInUseRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchVolumesInUseResponse]) error {
	if s.deps.VolumesInUse == nil {
		return s.UnimplementedPodSyncServiceServer.WatchVolumesInUse(r, stream)
	}
	ctx := stream.Context()
	sub, err := s.deps.VolumesInUse.InUse(ctx)
	if err != nil {
		return ctx.Err()
	}
	defer sub.Close()
	for {
		frame, err := sub.Next(ctx)
		if err != nil {
			return ctx.Err()
		}
		resp := &podsyncv1.WatchVolumesInUseResponse{Epoch: frame.Epoch, Revision: frame.Revision, Snapshot: frame.Snapshot}
		for name := range frame.Changed {
			resp.Names = append(resp.Names, string(name))
		}
		for _, name := range frame.Removed {
			resp.RemovedNames = append(resp.RemovedNames, string(name))
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}
