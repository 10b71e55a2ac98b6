// Package collector brings together what a document or a frame of signals is
// made of: measured rows, filesystems, the runtime's account, process numbers.
// It decides what is asked of whom and how long it may take; the documents
// themselves are made by pure packages. It must never keep what it was told longer than
// the answer takes.
package collector

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/exposition"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
	"github.com/polylet/polylet/services/stats/internal/summary"
)

const (
	// waitTimeout is how long a document waits for what is measured in the
	// background for the first time; what is missing then is left out.
	waitTimeout = 500 * time.Millisecond
	// renewTimeout is how long one waits for what is measured for it anew.
	renewTimeout = 3 * time.Second
	// layersFresh is how old the runtime's account of writable layers may be.
	layersFresh = 15 * time.Second
	// mountsFresh is how old the mount points of the runtime's filesystems may
	// be: they move only when the runtime is configured anew.
	mountsFresh = 5 * time.Minute
)

// Config says what the node is.
type Config struct {
	// NodeName goes into the document.
	NodeName string
	// RootDir is the directory whose filesystem is nodefs.
	RootDir string
	// PodsCgroup is the cgroup of all pods, until podsync says where it is.
	PodsCgroup string
	// System are the system containers, beside the pods'.
	System []summary.SystemContainer
	// Pressure is whether the kernel counts pressure per cgroup.
	Pressure bool
	// CgroupVersion is 1 or 2.
	CgroupVersion uint64
}

// Deps is who is asked.
type Deps struct {
	Meter   *sampler.Meter
	Names   *inventory.Table
	Runtime *disk.Runtime
	// Layers weighs what the runtime weighs seldom; nil: nobody does.
	Layers      *disk.Layers
	Directories *disk.Trees
	Driven      *disk.Drivens
	Machine     *machine.Machine
	Proc        process.Proc
	// Cgroups has the kernel's notices; nil: it is not asked for any.
	Cgroups CgroupDirs
}

// Collector collects. Safe for concurrent use.
type Collector struct {
	cfg  Config
	deps Deps
	// statfs is disk.Statfs but in tests.
	statfs func(path string) (disk.Filesystem, error)
	// root and runtime are the filesystems for the signals.
	root    answers[rootDisk]
	runtime answers[runtimeDisks]
	// rootBad is whether it was told that root's cannot be measured.
	rootBad atomic.Bool
	held    heldOpen
}

// New returns a Collector; it starts nothing.
func New(cfg Config, deps Deps) *Collector {
	return &Collector{cfg: cfg, deps: deps, statfs: disk.Statfs}
}

func (c *Collector) podsCgroup() string { return cmp.Or(c.deps.Names.PodsCgroup(), c.cfg.PodsCgroup) }

// Asked is what is asked of a summary.
type Asked struct {
	// OnlyCPUAndMemory leaves out all else.
	OnlyCPUAndMemory bool
	// Ended has what is left on disks by containers that have ended counted, too, and pods
	// without a ready sandbox.
	Ended bool
	// Renew has what lies on disks measured anew that was not since a time, or whenever it
	// was if that is zero; RenewLayers has the runtime asked alone.
	Renew, RenewLayers bool
	Since              time.Time
	// Of are the UIDs of the pods of which it is measured anew; none: of all.
	Of []string
}

// Summary collects the facts of /stats/summary.
func (c *Collector) Summary(ctx context.Context, asked Asked) (summary.Facts, error) {
	boot, err := c.deps.Proc.BootSeconds()
	if err != nil {
		return summary.Facts{}, err
	}
	level := sampler.Summary
	rows, err := c.deps.Meter.Rows(ctx, level)
	if err != nil {
		return summary.Facts{}, fmt.Errorf("measure the cgroups: %w", err)
	}
	pods := c.deps.Names.View().Pods
	if asked.Ended && !asked.OnlyCPUAndMemory {
		pods = c.deps.Names.View().Kept
	}
	out := summary.Facts{
		NodeName: c.cfg.NodeName, BootTime: time.Unix(boot, 0), Rows: rows, Pods: pods(),
		System: append(slices.Clone(c.cfg.System), summary.SystemContainer{Name: "pods", Cgroup: c.podsCgroup()}),
	}
	if asked.OnlyCPUAndMemory {
		return out, nil
	}
	out.Disk, err = c.disk(ctx, out.Pods, asked)
	return out, err
}

// Threads are how many each pod has of which rows tell, by UID. The processes that the
// document shows are those of the containers' own cgroups: who has thousands of threads
// in one, or has made cgroups below, would seem to use nothing of the machine's numbers.
func (c *Collector) Threads(rows []sampler.Row) map[string]uint64 {
	out := map[string]uint64{}
	for i := range rows {
		if row := &rows[i]; row.Kind == sampler.Pod && row.Pod.UID != "" {
			if n := c.deps.Meter.Threads(row.Cgroup); n > 0 {
				out[row.Pod.UID] = n
			}
		}
	}
	return out
}

func (c *Collector) disk(ctx context.Context, pods []inventory.PresentPod, asked Asked) (*summary.Disk, error) {
	if asked.Renew {
		return c.renewed(ctx, pods, asked)
	}
	waitCtx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	// A runtime that does not answer, as when its disk is full, takes nobody else's time.
	var usage disk.RuntimeUsage
	var asking sync.WaitGroup
	asking.Go(func() { usage = c.usage(waitCtx, asked.RenewLayers) })
	out := &summary.Disk{}
	out.Directories = c.deps.Directories.Get(waitCtx, c.places(pods, out))
	out.Unsure = unsure(pods, out.Directories)
	out.Driven = c.deps.Driven.Get(waitCtx, driven(pods))
	asking.Wait()
	out.Layers = usage.Layers
	return out, c.filesystems(ctx, out, usage)
}

// AskDrivers asks volumes' drivers each period, about the volumes that a summary shows,
// until ctx is done.
func (c *Collector) AskDrivers(ctx context.Context) error {
	return c.deps.Driven.Run(ctx, func() []disk.Volume { return driven(c.deps.Names.View().Pods()) })
}

// places lists all that is measured of pods, and says which are a pod's own.
func (c *Collector) places(pods []inventory.PresentPod, out *summary.Disk) []disk.Directory {
	out.Own = map[string][]string{}
	dirs := directories(pods)
	for _, pod := range pods {
		for _, dir := range c.own(pod) {
			dirs = append(dirs, dir)
			out.Own[pod.Sandbox.Pod.UID] = append(out.Own[pod.Sandbox.Pod.UID], dir.Path)
		}
	}
	return dirs
}

// filesystems measures what is left, after all that is waited for: who acts upon it wants
// to know how it stands then.
func (c *Collector) filesystems(ctx context.Context, out *summary.Disk, usage disk.RuntimeUsage) (err error) {
	out.Time = time.Now()
	if out.Root, err = c.Root(ctx); err != nil {
		return err
	}
	if out.Numbers, err = c.deps.Proc.Numbers(); err != nil {
		return err
	}
	disks := c.runtimeDisks(ctx, usage)
	out.Image, out.Container = disks.images, disks.containers
	return nil
}

// usage is the runtime's account.
func (c *Collector) usage(ctx context.Context, renew bool) disk.RuntimeUsage {
	if renew {
		return c.deps.Runtime.Renew(ctx)
	}
	return c.deps.Runtime.Get(ctx, layersFresh)
}

// own are the places of a pod beside its containers' and its volumes: the hosts
// file that all its containers share, their termination logs, and log files of
// the pod itself, which lie beside its containers' log directories.
func (c *Collector) own(pod inventory.PresentPod) []disk.Directory {
	if over(pod) {
		return nil
	}
	dir := filepath.Join(c.cfg.RootDir, "pods", pod.Sandbox.Pod.UID)
	whose := pod.Sandbox.Pod.Namespace
	out := []disk.Directory{{Path: filepath.Join(dir, "etc-hosts"), Namespace: whose, Flat: true}}
	containers := logging(pod)
	for _, k := range containers {
		out = append(out, disk.Directory{Path: filepath.Join(dir, "containers", k.Name), Namespace: whose, Flat: true})
	}
	for _, k := range containers {
		if k.LogDir != "" {
			return append(out, disk.Directory{Path: filepath.Dir(k.LogDir), Namespace: whose, Flat: true})
		}
	}
	return out
}

// runtimeFilesystem measures the first filesystem that the runtime names.
func (c *Collector) runtimeFilesystem(usages []disk.Usage) *summary.RuntimeFilesystem {
	for _, u := range usages {
		if f, err := c.statfs(u.Mountpoint); err == nil {
			return &summary.RuntimeFilesystem{Filesystem: f, Usage: u}
		}
	}
	return nil
}

// directories lists what is measured of pods: logs and volumes. What is a
// mount of its own (memory, claims, disks of pods' own specs) is measured as a
// filesystem, which takes no look at all of its files.
func directories(pods []inventory.PresentPod) []disk.Directory {
	var out []disk.Directory
	for _, pod := range pods {
		whose := pod.Sandbox.Pod.Namespace
		for _, c := range logging(pod) {
			if c.LogDir != "" {
				out = append(out, disk.Directory{Path: c.LogDir, Namespace: whose})
			}
		}
		for _, v := range pod.Volumes {
			if v.HostPath == "" {
				continue
			}
			dir := disk.Directory{Path: v.HostPath, Namespace: whose, FilesystemOnly: v.InMemory || !v.Ephemeral, OwnMount: v.InMemory}
			if v.Counted {
				dir.Counted = disk.Volume{PodUID: pod.Sandbox.Pod.UID, Name: v.Name}
			}
			out = append(out, dir)
		}
	}
	return out
}

// driven lists the volumes of pods that only their drivers can measure.
func driven(pods []inventory.PresentPod) (out []disk.Volume) {
	for _, pod := range pods {
		for _, v := range pod.Volumes {
			if v.Driven {
				out = append(out, disk.Volume{PodUID: pod.Sandbox.Pod.UID, Name: v.Name})
			}
		}
	}
	return out
}

// Cadvisor returns the /metrics/cadvisor document.
func (c *Collector) Cadvisor(ctx context.Context) exposition.Document {
	rows, err := c.deps.Meter.Rows(ctx, sampler.Full)
	info, infoErr := c.deps.Machine.Info()
	if infoErr != nil {
		info = nil
	}
	waitCtx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	return exposition.Cadvisor(rows, exposition.Machine{
		Info: info, Version: c.deps.Machine.Version(), Pressure: c.cfg.Pressure,
		SandboxImage: c.deps.Runtime.Get(waitCtx, mountsFresh).SandboxImage,
	}, err)
}

// Resource returns the /metrics/resource document.
func (c *Collector) Resource(ctx context.Context) exposition.Document {
	level := sampler.Basic
	if info, err := c.deps.Machine.Info(); err == nil && info.SwapCapacity > 0 {
		level = sampler.Summary // Swap limits are among its rows.
	}
	rows, err := c.deps.Meter.Rows(ctx, level)
	return exposition.Resource(rows, c.deps.Names.View().Pods(), err)
}
