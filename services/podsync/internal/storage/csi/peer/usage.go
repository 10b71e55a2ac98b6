package peer

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Usage asks how full a volume is; condition: and how it is.
func (d *Driver) Usage(ctx context.Context, handle, target string, condition bool) (volume.Usage, error) {
	answer, err := d.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: target})
	if err != nil {
		return volume.Usage{}, err
	}
	var out volume.Usage
	if condition {
		out.Condition = conditionIn(answer.ProtoReflect().GetUnknown())
	}
	if len(answer.GetUsage()) == 0 && out.Condition == nil {
		return volume.Usage{}, errors.New("failed to get usage from response. usage is nil")
	}
	for _, u := range answer.GetUsage() {
		free, all, used := amount(u.GetAvailable()), amount(u.GetTotal()), amount(u.GetUsed())
		switch u.GetUnit() {
		case csi.VolumeUsage_BYTES:
			out.Available, out.Capacity, out.Used = free, all, used
		case csi.VolumeUsage_INODES:
			out.InodesFree, out.Inodes, out.InodesUsed = free, all, used
		}
	}
	return out, nil
}

// amount is a number of which there cannot be less than none.
func amount(n int64) uint64 { return uint64(max(n, 0)) }
