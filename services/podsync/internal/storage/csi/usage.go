package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// mostAsked is how many questions about volumes are under way with one driver.
const mostAsked = 4

// Usage implements volume.Meter. Of one driver few volumes are asked about at once, and
// others wait their turn within their ctx.
func (c *Volumes) Usage(ctx context.Context, dir string) (volume.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	data, err := readVolumeData(dir)
	if err != nil {
		return volume.Usage{}, err
	}
	driver, err := c.drivers.now(data.DriverName)
	if err != nil {
		return volume.Usage{}, fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	select {
	case driver.asked <- struct{}{}:
		defer func() { <-driver.asked }()
	case <-ctx.Done():
		return volume.Usage{}, fmt.Errorf("CSI driver %s has not answered other questions about its volumes: %w", data.DriverName, context.Cause(ctx))
	}
	can, err := driver.abilities(ctx)
	if err != nil {
		return volume.Usage{}, err
	}
	if !can[csi.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return volume.Usage{}, fmt.Errorf("CSI driver %s: %w", data.DriverName, volume.ErrNoUsage)
	}
	usage, err := driver.usage(ctx, data.VolumeHandle, filepath.Join(dir, mountName), can)
	usage.Driver = data.DriverName
	return usage, err
}

// now finds a driver; nobody is told when it comes.
func (d *drivers) now(name string) (*registered, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.all[name]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// usage asks how full a volume is.
func (c *client) usage(ctx context.Context, handle, target string, can abilities) (volume.Usage, error) {
	answer, err := c.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: target})
	if err != nil {
		return volume.Usage{}, err
	}
	var out volume.Usage
	if can[canSayCondition] {
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

// DriverOf implements volume.Namer.
func (c *Volumes) DriverOf(dir string) string {
	data, err := readVolumeData(dir)
	if err != nil || !c.Knows(data.DriverName) {
		return ""
	}
	return data.DriverName
}

// Knows implements volume.Namer.
func (c *Volumes) Knows(driver string) bool {
	_, err := c.drivers.now(driver)
	return err == nil
}
