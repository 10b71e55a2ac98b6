package server

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// GetVolumeUsage implements PodSyncService.
func (s *Server) GetVolumeUsage(ctx context.Context, r *podsyncv1.GetVolumeUsageRequest) (*podsyncv1.GetVolumeUsageResponse, error) {
	if s.deps.Volumes == nil {
		return s.UnimplementedPodSyncServiceServer.GetVolumeUsage(ctx, r)
	}
	usage, err := s.deps.Volumes.Usage(ctx, types.UID(r.GetPodUid()), r.GetVolume())
	switch {
	case errors.Is(err, volume.ErrNoUsage):
		return nil, fmt.Errorf("%w: %w", rpcerr.ErrUnimplemented, err)
	case errors.Is(err, volume.ErrNotDriven):
		return nil, fmt.Errorf("%w: %w", rpcerr.ErrNotFound, err)
	case err != nil:
		return nil, err
	}
	resp := &podsyncv1.GetVolumeUsageResponse{
		Driver: usage.Driver, AvailableBytes: usage.Available, CapacityBytes: usage.Capacity, UsedBytes: usage.Used,
		InodesFree: usage.InodesFree, Inodes: usage.Inodes, InodesUsed: usage.InodesUsed,
	}
	if c := usage.Condition; c != nil {
		resp.Condition = &podsyncv1.VolumeCondition{Abnormal: c.Abnormal, Message: c.Message}
	}
	return resp, nil
}
