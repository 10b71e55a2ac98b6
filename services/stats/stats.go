// Package stats measures the node: cAdvisor's machine and container
// statistics, /stats/summary, /metrics/cadvisor, /metrics/resource and the
// eviction signals.
//
// It owns every measurement of the node and must never change anything: not a
// cgroup, not a file, not a pod. What containers are called it learns from
// podsync; without podsync it measures on, without names.
package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/collector"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/kernellog"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/peer"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
	"github.com/polylet/polylet/services/stats/internal/server"
	"github.com/polylet/polylet/services/stats/internal/summary"
)

const (
	machineMaxAge   = 5 * time.Minute
	runtimeDeadline = 10 * time.Second
	walkDeadline    = 30 * time.Second
	drivenDeadline  = 30 * time.Second
)

// KernelLog is the file that stats wants to have as its standard input: it has no right
// to open it.
const KernelLog = kernellog.Path

// Deps is what stats is given.
type Deps struct {
	// Podsync is a connection to podsync.
	Podsync grpc.ClientConnInterface
	// Metrics is the process's main registry.
	Metrics prometheus.Registerer
	// Health is told of podsync.
	Health health.Reporter
	// Note is told of what is to be known and keeps nobody waiting; nil is told nothing.
	Note func(name, message string)
	// Epoch is the process's, random per start.
	Epoch uint64
	// Cgroups is where cgroups are mounted; nil finds them.
	Cgroups *cgroup.Hierarchy
	// Proc is the proc filesystem; "" is /proc.
	Proc process.Proc
	// KernelLog opens the kernel's log; nil opens this machine's.
	KernelLog func() (io.ReadCloser, error)
}

// Service is the stats process's job.
type Service struct {
	names       *inventory.Table
	meter       *sampler.Meter
	directories *disk.Trees
	layers      *disk.Layers
	podsync     *peer.Podsync
	kernel      *kernellog.Log
	// askDrivers asks volumes' drivers by itself; nil: they are asked when somebody wants to know.
	askDrivers func(context.Context) error
	server     *server.Server
}

// New wires the service; it starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if deps.Podsync == nil {
		return nil, errors.New("stats: no connection to podsync was given")
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Proc == "" {
		deps.Proc = "/proc"
	}
	if deps.Cgroups == nil {
		hierarchy, err := cgroup.Detect()
		if err != nil {
			return nil, fmt.Errorf("stats: %w", err)
		}
		deps.Cgroups = hierarchy
	}
	if cfg.VolumePeriod == 0 {
		cfg.VolumePeriod = time.Minute
	}
	s := &Service{names: &inventory.Table{}, podsync: peer.NewPodsync(deps.Podsync, deps.Health)}
	description := machine.New(machineMaxAge)
	system := systemContainers(cfg)
	s.meter = sampler.New(sampler.Roots{Pods: cfg.podsCgroup(), Groups: groups(system)}, sampler.Deps{
		Cgroups: deps.Cgroups, Names: s.names, Proc: deps.Proc, Machine: description,
	})
	walks, err := collector.NewWalks(deps.Metrics)
	if err != nil {
		return nil, err
	}
	var collected *collector.Collector
	driven := disk.NewDrivens(disk.DrivenConfig{Period: cfg.VolumePeriod, Deadline: drivenDeadline, Measured: walks.Answered}, s.podsync.VolumeUsage)
	s.directories = disk.NewTrees(disk.TreesConfig{Period: cfg.VolumePeriod, Deadline: walkDeadline, Forget: 5 * cfg.VolumePeriod, Measured: walks.Took, Count: s.podsync.VolumeCount, Held: func(ctx context.Context, v disk.Volume) disk.Tree { return collected.Held(ctx, v) }})
	s.layers = disk.NewLayers(filepath.Join(string(deps.Proc), "self", "mountinfo"), disk.TreesConfig{Period: cfg.VolumePeriod, Deadline: walkDeadline, Forget: 5 * cfg.VolumePeriod})
	version := uint64(1)
	if deps.Cgroups.Unified() {
		version = 2
	}
	var dirs collector.CgroupDirs
	if cfg.MemoryNotices {
		dirs = deps.Cgroups
	}
	collected = collector.New(collector.Config{
		CgroupVersion: version,
		NodeName:      cfg.NodeName, RootDir: cfg.RootDir, PodsCgroup: cfg.podsCgroup(), System: system, Pressure: deps.Cgroups.HasPressure(),
	}, collector.Deps{
		Meter: s.meter, Names: s.names, Runtime: disk.NewRuntime(runtimeDeadline, s.podsync.FilesystemUsage),
		Layers: s.layers, Directories: s.directories, Driven: driven, Machine: description, Proc: deps.Proc, Cgroups: dirs,
	})
	if deps.Metrics != nil {
		if err := deps.Metrics.Register(collector.NewMetrics(collected)); err != nil {
			return nil, fmt.Errorf("stats: register the metrics of volumes and logs: %w", err)
		}
	}
	if cfg.AskDrivers {
		s.askDrivers = collected.AskDrivers
	}
	s.kernel = kernelLog(deps)
	s.server = server.New(server.Deps{
		Collector: collected, Machine: description, Proc: deps.Proc, Kernel: s.kernel, Names: s.names, Epoch: deps.Epoch,
	})
	return s, nil
}

func kernelLog(deps Deps) *kernellog.Log {
	cfg := kernellog.Config{Open: deps.KernelLog, Boot: kernellog.Boot}
	if cfg.Open == nil {
		cfg.Open = kernellog.Open
	}
	if deps.Note != nil {
		cfg.Problem = func(message string) { deps.Note("kernel log", message) }
	}
	return kernellog.New(cfg)
}

// systemContainers are those of the configuration.
func systemContainers(cfg Config) []summary.SystemContainer {
	var out []summary.SystemContainer
	for _, s := range []summary.SystemContainer{
		{Name: "kubelet", Cgroup: cfg.KubeletCgroup},
		{Name: "runtime", Cgroup: cfg.RuntimeCgroup},
		{Name: "misc", Cgroup: cfg.SystemCgroup},
	} {
		if s.Cgroup != "" {
			out = append(out, s)
		}
	}
	return out
}

func groups(system []summary.SystemContainer) []string {
	out := make([]string, 0, len(system))
	for _, s := range system {
		out = append(out, s.Cgroup)
	}
	return out
}

// Register puts StatsService on a server.
func (s *Service) Register(r grpc.ServiceRegistrar) { statsv1.RegisterStatsServiceServer(r, s.server) }

// Run follows podsync and keeps what needs keeping until ctx is done; then it
// returns nil.
func (s *Service) Run(ctx context.Context) error {
	group := daemon.NewGroup(ctx, service.Stats)
	group.Go("names of containers", func(ctx context.Context) error { return s.podsync.Follow(ctx, s.names) })
	group.Go("sampler", s.meter.Run)
	group.Go("directories", s.directories.Run)
	group.Go("layers", s.layers.Run)
	group.Go("kernel log", s.kernel.Run)
	if s.askDrivers != nil {
		group.Go("drivers of volumes", s.askDrivers)
	}
	return group.Wait()
}
