package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/signal"
	"github.com/polylet/polylet/services/stats/internal/summary"
)

// rootDisk is the filesystem of the root directory.
type rootDisk struct {
	filesystem disk.Filesystem
	err        error
}

// runtimeDisks are the filesystems of images and of containers' layers, nil where there
// is none, and whether they are others than that of the root directory and of images.
type runtimeDisks struct {
	images, containers           *summary.RuntimeFilesystem
	imagesApart, containersApart bool
}

// Signals measures the eviction signals. Those of a filesystem that does not answer, or
// that cannot be measured, are left out: memory does not wait for it.
func (c *Collector) Signals(ctx context.Context) (signal.Frame, error) {
	facts, err := c.memory()
	if err != nil {
		return signal.Frame{}, err
	}
	root, err := c.Root(ctx)
	if err == nil {
		facts.Root = &root
	}
	c.tellRoot(ctx, err)
	if numbers, err := c.deps.Proc.Numbers(); err == nil {
		facts.Processes = &numbers
	}
	waitCtx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	usage := c.deps.Runtime.Get(waitCtx, mountsFresh)
	disks := c.runtimeDisks(ctx, usage)
	if disks.images != nil {
		facts.Image = &disks.images.Filesystem
	}
	if disks.containers != nil {
		facts.Container = &disks.containers.Filesystem
	}
	return signal.Frame{Signals: signal.Compute(facts), ImagesApart: disks.imagesApart, ContainersApart: disks.containersApart}, nil
}

// tellRoot tells once that the filesystem of the root directory cannot be measured.
func (c *Collector) tellRoot(ctx context.Context, err error) {
	bad := err != nil && !errors.Is(err, errSilent) // which is told
	if bad != c.rootBad.Swap(bad) && bad {
		klog.FromContext(ctx).Error(err, "The filesystem of the root directory cannot be measured, and nobody knows what is left there until it can")
	}
}

// errSilent says that a filesystem does not answer.
var errSilent = errors.New("it does not answer; look at the mount")

// Root measures the filesystem of the root directory, and waits for it for diskTime.
func (c *Collector) Root(ctx context.Context) (disk.Filesystem, error) {
	root, answered := c.root.get(ctx, c.cfg.RootDir, func() rootDisk {
		f, err := c.statfs(c.cfg.RootDir)
		return rootDisk{f, err}
	})
	if !answered {
		return disk.Filesystem{}, fmt.Errorf("measure the filesystem of %s: %w", c.cfg.RootDir, errSilent)
	}
	return root.filesystem, root.err
}

// runtimeDisks measures the runtime's filesystems, and waits for them for diskTime: of
// those that do not answer it is known where they were.
func (c *Collector) runtimeDisks(ctx context.Context, usage disk.RuntimeUsage) runtimeDisks {
	first := ""
	if len(usage.Images) > 0 {
		first = usage.Images[0].Mountpoint
	}
	out, answered := c.runtime.get(ctx, first, func() (out runtimeDisks) {
		out.images, out.containers = c.runtimeFilesystem(usage.Images), c.runtimeFilesystem(usage.Containers)
		if out.images != nil {
			out.imagesApart = disk.Apart(c.cfg.RootDir, out.images.Usage.Mountpoint)
		}
		if out.images != nil && out.containers != nil {
			out.containersApart = disk.Apart(out.images.Usage.Mountpoint, out.containers.Usage.Mountpoint)
		}
		if out.containers == nil {
			out.containers = out.images
		}
		return out
	})
	if !answered {
		out.images, out.containers = nil, nil
	}
	out.images, out.containers = saying(out.images, usage.Images), saying(out.containers, append(slices.Clone(usage.Containers), usage.Images...))
	return out
}

// saying is a filesystem with the newest that the runtime says of it: what was asked
// beside this may be older.
func saying(f *summary.RuntimeFilesystem, all []disk.Usage) *summary.RuntimeFilesystem {
	if f == nil {
		return nil
	}
	for _, u := range all {
		if u.Mountpoint == f.Usage.Mountpoint {
			return &summary.RuntimeFilesystem{Filesystem: f.Filesystem, Usage: u}
		}
	}
	return f
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
	facts.Node = &signal.Memory{Limit: info.MemoryCapacity, WorkingSet: node.WorkingSet, Idle: node.Usage - min(node.WorkingSet, node.Usage), Time: node.Time}
	if pods, err := c.deps.Meter.Memory(c.podsCgroup()); err == nil && pods.Limit > 0 {
		facts.Pods = &signal.Memory{Limit: pods.Limit, WorkingSet: pods.WorkingSet, Idle: pods.Usage - min(pods.WorkingSet, pods.Usage), Time: pods.Time}
	}
	return facts, nil
}
