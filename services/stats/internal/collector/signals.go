package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/signal"
)

// Signals measures the eviction signals.
func (c *Collector) Signals(ctx context.Context) (signal.Frame, error) {
	facts, err := c.memory()
	if err != nil {
		return signal.Frame{}, err
	}
	root, err := disk.Statfs(c.cfg.RootDir)
	if err != nil {
		return signal.Frame{}, err
	}
	facts.Root = &root
	if numbers, err := c.deps.Proc.Numbers(); err == nil {
		facts.Processes = &numbers
	}
	waitCtx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	usage := c.deps.Runtime.Get(waitCtx, mountsFresh)
	var out signal.Frame
	images, containers := runtimeFilesystem(usage.Images), runtimeFilesystem(usage.Containers)
	if images != nil {
		facts.Image, facts.Container = &images.Filesystem, &images.Filesystem
		out.ImagesApart = disk.Apart(c.cfg.RootDir, images.Usage.Mountpoint)
	}
	if containers != nil {
		facts.Container = &containers.Filesystem
		out.ContainersApart = images != nil && disk.Apart(images.Usage.Mountpoint, containers.Usage.Mountpoint)
	}
	out.Signals = signal.Compute(facts)
	return out, nil
}

// MemorySignals measures those of memory only: one or two small files.
func (c *Collector) MemorySignals() ([]signal.Signal, error) {
	facts, err := c.memory()
	if err != nil {
		return nil, err
	}
	return signal.Compute(facts), nil
}

func (c *Collector) memory() (signal.Facts, error) {
	facts := signal.Facts{Time: time.Now()}
	info, err := c.deps.Machine.Info()
	if err != nil {
		return facts, err
	}
	node, err := c.deps.Meter.Memory("/")
	if err != nil {
		return facts, fmt.Errorf("measure the node's memory: %w", err)
	}
	facts.Node = &signal.Memory{Limit: info.MemoryCapacity, WorkingSet: node.WorkingSet, Time: node.Time}
	if pods, err := c.deps.Meter.Memory(c.podsCgroup()); err == nil && pods.Limit > 0 {
		facts.Pods = &signal.Memory{Limit: pods.Limit, WorkingSet: pods.WorkingSet, Time: pods.Time}
	}
	return facts, nil
}
