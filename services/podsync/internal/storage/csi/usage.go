package csi

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

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
	kept, target := c.places(dir)
	data, err := readVolumeData(kept)
	if err != nil {
		return volume.Usage{}, err
	}
	driver, err := c.drivers.find(data.DriverName)
	if err != nil {
		return volume.Usage{}, fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	select {
	case driver.asked <- struct{}{}:
		defer func() { <-driver.asked }()
	case <-ctx.Done():
		return volume.Usage{}, fmt.Errorf("CSI driver %s has not answered other questions about its volumes: %w", data.DriverName, context.Cause(ctx))
	}
	can, err := driver.Abilities(ctx)
	if err != nil {
		return volume.Usage{}, err
	}
	if !can.Stats {
		return volume.Usage{}, fmt.Errorf("CSI driver %s: %w", data.DriverName, volume.ErrNoUsage)
	}
	usage, err := driver.Usage(ctx, data.VolumeHandle, target, can.Condition)
	usage.Driver = data.DriverName
	return usage, err
}

// places are where lies what is kept of a pod's volume, or of the device that a link in its
// place leads to, and what a driver measures.
func (c *Volumes) places(dir string) (kept, target string) {
	plugin := filepath.Dir(dir)
	if filepath.Base(filepath.Dir(plugin)) != podDevices {
		return dir, filepath.Join(dir, mountName)
	}
	pod := filepath.Dir(filepath.Dir(plugin))
	at := c.blockPlaces(filepath.Base(dir), types.UID(filepath.Base(pod)))
	return at.data, at.device
}

// DriverOf implements volume.Namer.
func (c *Volumes) DriverOf(dir string) string {
	kept, _ := c.places(dir)
	data, err := readVolumeData(kept)
	if err != nil || !c.Knows(data.DriverName) {
		return ""
	}
	return data.DriverName
}

// Knows implements volume.Namer.
func (c *Volumes) Knows(driver string) bool {
	_, err := c.drivers.find(driver)
	return err == nil
}
