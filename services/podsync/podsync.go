// Package podsync makes what runs on the node equal to what is wanted: it takes
// pods from the apiserver and from files, runs them through a container
// runtime, and reports their state. It is the only service that changes the
// host. It knows no other service; they ask it.
package podsync

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/desired/mirror"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/host/firewall"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/logrotate"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/execute"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/stopping"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/conditions"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
	"github.com/polylet/polylet/services/podsync/internal/report/idle"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
	"github.com/polylet/polylet/services/podsync/internal/runtime/logs"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
	"github.com/polylet/polylet/services/podsync/internal/server"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Deps are what podsync is given.
type Deps struct {
	// Metrics is the process's main registry.
	Metrics prometheus.Registerer
	Health  health.Reporter
	Epoch   uint64
	// Runtime and Images are connections to the container runtime; see DialRuntime.
	Runtime, Images grpc.ClientConnInterface
	// Client is nil in standalone mode. Events is the client for events, which
	// have a rate limit of their own; nil is Client.
	Client, Events kubernetes.Interface

	// The rest stands in for the host where podsync runs on none, as in the
	// simulation; nil is the host's own.
	Mounter     mount.Mounter
	Cgroups     cgroup.Manager
	Notifier    source.Notifier
	LogNotifier logs.Notifier
	HostsGuard  HostsGuard
	HostIPs     func() []string
	Machine     kernel.Machine
	FreePercent func(dir string) (float64, error)
}

// HostsGuard keeps the pods' hosts files and termination logs small; see package
// hostsguard.
type HostsGuard interface {
	// Watch never waits.
	Watch(file string)
	// Run guards until ctx is done.
	Run(ctx context.Context) error
}

func (d *Deps) eventClient() kubernetes.Interface {
	if d.Events != nil {
		return d.Events
	}
	return d.Client
}

// DialRuntime returns a connection to a runtime's endpoint; it connects when it
// is used, and again within a second when the runtime comes back.
func DialRuntime(endpoint string) (*grpc.ClientConn, error) { return cri.Dial(endpoint) }

// Service is podsync.
type Service struct {
	cfg  Config
	deps Deps

	runtime  *cri.Client
	sessions *execreaper.Book
	objects  *objects.Store
	volumes  *volume.Set
	cgroups  cgroup.Manager
	events   *event.Recorder
	idle     *idle.Gate
	mirrors  *mirror.Keeper
	statuses *status.Writer
	metrics  *metrics.Metrics // nil without a registry
	probes   *probestore.Board
	standing *conditions.Keeper
	ends     *stopping.Keeper
	hosts    HostsGuard
	pods     *podcache.Pods
	table    *podcache.Table
	observer *observe.Observer
	registry *worker.Registry
	lines    *timeline.Book
	// sendTraces sends spans; nil unless a collector is configured.
	sendTraces func(context.Context) error
	tokens     *serviceaccount.Cache
	users      *userns.Allocator
	pulls      *pullrecord.Ledger // nil when nothing is verified
	sources    *source.Sources
	server     *server.Server

	allocations *allocation.Store

	rotator   *logrotate.Rotator
	collector *imagegc.Collector
	images    *imageList

	node      atomic.Pointer[v1.Node]
	addresses atomic.Pointer[[]string]
	// Whether they were looked for, and whether they were found where the Node object
	// was known.
	addressesSought, addressesKnown atomic.Bool
	// What wakes followNode, readNode and followAddresses.
	nodeKick, readKick, addressKick chan struct{}
	// What followNode knows of the cgroups: their Manager, the limits that were
	// applied last, and the failure that was told last.
	madeCgroups  cgroup.Manager
	cgroupDriver cgroup.Driver
	enforced     *cgroup.Limits
	notEnforced  string
	// nodeStale asks for the Node object to be read anew; nodeRead is when that
	// was done last.
	nodeStale atomic.Bool
	nodeRead  atomic.Pointer[time.Time]
	// runtimeAway is what no victim of a critical pod is blamed for.
	runtimeAway outage
}

// New wires podsync up. It starts nothing and touches nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	cfg.applyDefaults()
	if deps.Runtime == nil || deps.Images == nil {
		return nil, errors.New("podsync: Deps.Runtime and Deps.Images must be set")
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	s := &Service{
		cfg: cfg, deps: deps, lines: timeline.NewBook(), idle: idle.New(),
		nodeKick: make(chan struct{}, 1), readKick: make(chan struct{}, 1), addressKick: make(chan struct{}, 1),
	}
	var calls *cri.Metrics
	var counts *worker.Metrics
	if deps.Metrics != nil {
		calls, counts = cri.NewMetrics(deps.Metrics), worker.NewMetrics(deps.Metrics)
		s.metrics = metrics.New(deps.Metrics)
		deps.Metrics.MustRegister(gauges{s})
	}
	if err := s.trace(); err != nil {
		return nil, err
	}
	s.runtime = cri.New(cri.Config{RequestTimeout: cfg.RuntimeRequestTimeout}, s.deps.Runtime, s.deps.Images, calls)
	s.sessions = execreaper.New(execreaper.Deps{Metrics: deps.Metrics})
	s.allocations = allocation.New(filepath.Join(cfg.RootDir, "polylet", "allocations.json"), deps.Health)
	s.table, s.pods = podcache.NewTable(deps.Epoch), podcache.NewPods(deps.Epoch)
	s.observer = observe.New(observe.Config{Endpoint: cfg.RuntimeEndpoint, PodsDir: filepath.Join(cfg.RootDir, "pods"), PodLogsDir: cfg.PodLogsDir}, observe.Deps{
		Client: s.runtime, Sink: runtimeSink{s}, Health: deps.Health, Rows: s.table, Metrics: s.metrics,
	})
	s.edges()
	if err := s.sourcesOf(); err != nil {
		return nil, err
	}
	s.host()
	puller, err := s.puller()
	if err != nil {
		return nil, err
	}
	s.registry = worker.New(worker.Config{Sources: s.sources.Names(), MaxDead: cfg.MaxDeadContainers}, worker.Deps{
		Executor: s.executor(puller), Status: s.statuses, Probes: s.probes, Events: s.events, Pods: s.pods, Mirrors: s.mirrors, Metrics: counts, Standing: s.standing, Ends: s.ends,
		Timelines: s.lines,
		Admit:     s.admit, Unmet: s.unmet, Resize: s.resize, Allocations: s.allocations, Node: s.nodeFacts, OnDisk: s.onDisk, AllKnown: s.probes.Prune,
		InDoubt: s.inDoubt,
	})
	s.housekeeping()
	s.server, err = server.New(server.Deps{
		Pods: s.pods, Table: s.table, Probes: s.probes, Explain: s.registry, Trouble: s.trouble, Events: s.events,
		Runtime: listedImages{heldRuntime{s.runtime.Raw(), s.sessions}, s.images}, Sessions: s.sessions, ContainerRuns: s.containerRuns, State: s.runtimeState, LogPath: s.logPath, Mirrors: s.mirrors,
		CheckpointDir: filepath.Join(cfg.RootDir, "checkpoints"),
		SandboxImage:  s.runtime.SandboxImage, FreePercent: deps.FreePercent,
		Logs: logs.New(logs.Config{Root: cfg.PodLogsDir}, logs.Deps{Notifier: deps.LogNotifier}),
	})
	return s, err
}

// edges makes what talks to the apiserver and to probes.
func (s *Service) edges() {
	cfg, deps := s.cfg, s.deps
	s.objects = objects.New(objects.Config{NodeName: cfg.NodeName}, objects.Deps{Client: deps.Client})
	s.objects.Subscribe(s.objectChanged)
	s.events = event.New(event.Config{NodeName: cfg.NodeName}, event.Deps{Client: deps.eventClient(), WaitIdle: s.idle.WaitIdle})
	s.mirrors = mirror.New(mirror.Config{NodeName: cfg.NodeName}, mirror.Deps{
		Client: deps.Client, Node: s.objects.Node, Health: deps.Health,
		OnChange: func(static types.UID) { s.statuses.Touch(static) },
	})
	s.statuses = status.New(status.Config{}, status.Deps{
		Client: deps.Client, Mirrors: s.mirrors, Health: deps.Health, OnRefused: s.refused, OnWithheld: s.withheld, Sending: s.idle.Begin, Trace: s.traceStatus, Metrics: s.metrics,
	})
	if s.hosts = deps.HostsGuard; s.hosts == nil {
		s.hosts = smallfiles.New(filepath.Join(cfg.RootDir, "pods"), smallfiles.Deps{Health: deps.Health})
	}
	s.ends = stopping.New(stopping.Deps{File: filepath.Join(cfg.RootDir, "polylet", "stops.json"), Health: deps.Health})
	s.standing = conditions.New(conditions.Deps{File: filepath.Join(cfg.RootDir, "polylet", "conditions.json"), Health: deps.Health})
	s.probes = probestore.NewBoard(probestore.Deps{
		Epoch: deps.Epoch, Events: probeEvents{s}, Health: deps.Health, Memory: filepath.Join(cfg.RootDir, "polylet", "probe-results.json"),
		OnResult: func(uid types.UID, key podstate.ProbeKey, r podstate.ProbeResult) {
			s.registry.ProbeResult(uid, key, r)
		},
	})
}

func (s *Service) sourcesOf() (err error) {
	s.sources, err = source.New(source.Config{
		NodeName: s.cfg.NodeName, StaticPodPath: s.cfg.StaticPodPath, FileCheckFrequency: s.cfg.FileCheckFrequency,
		StaticPodURL: s.cfg.StaticPodURL, StaticPodURLHeader: s.cfg.StaticPodURLHeader,
		HTTPCheckFrequency: s.cfg.HTTPCheckFrequency, AllowAPIReferences: s.cfg.AllowAPIReferences,
	}, source.Deps{
		Client: s.deps.Client, Mirrors: s.mirrors, Events: s.events, Health: s.deps.Health, Notifier: s.deps.Notifier,
	})
	return err
}

// host makes what lies on the node: volumes and cgroups.
func (s *Service) host() {
	if s.deps.Mounter == nil {
		s.deps.Mounter = mount.New()
	}
	cfg, deps := s.cfg, s.deps
	var requester serviceaccount.Requester
	if deps.Client != nil {
		requester = serviceaccount.FromClient(deps.Client)
	}
	s.users = userns.New(userns.Config{RootDir: cfg.RootDir, IDsPerPod: cfg.UserNamespaceIDs, Host: func() (userns.Range, error) {
		return userns.HostIDs(cfg.MaxPods, max(cfg.UserNamespaceIDs, userns.DefaultIDs))
	}})
	s.tokens = serviceaccount.New(serviceaccount.Config{}, serviceaccount.Deps{Requester: requester})
	s.volumes = volume.New(volume.Config{RootDir: cfg.RootDir}, volume.Deps{
		Objects: s.objects, Tokens: s.tokens, Mounter: deps.Mounter,
		Metrics:     s.metrics,
		Allocatable: s.allocatable, Changed: func(uid types.UID) { s.registry.ObjectsChanged([]types.UID{uid}) },
	})
	switch {
	case deps.Cgroups != nil:
		s.cgroups = deps.Cgroups
	case cfg.CgroupsPerQOS:
		s.cgroups = newCgroups()
	default:
		s.cgroups = cgroup.Off{}
	}
}

// firewall makes what keeps the chains of iptables.
func (s *Service) firewall() *firewall.Keeper {
	return firewall.New(firewall.Deps{Health: s.deps.Health, Event: func(message string) {
		s.events.Node(v1.EventTypeWarning, "NoIPTablesChains", message)
	}})
}

// executor makes what carries actions out.
func (s *Service) executor(puller *image.Puller) *execute.Executor {
	cfg := s.cfg
	builder := criconfig.New(criconfig.Config{
		RootDir: cfg.RootDir, PodLogsDir: cfg.PodLogsDir, NodeName: cfg.NodeName, ClusterDomain: cfg.ClusterDomain,
		ClusterDNS: cfg.ClusterDNS, ResolvConf: cfg.ResolvConf, SeccompDefault: cfg.SeccompDefault,
		CPUCFSQuota: cfg.CPUCFSQuota, CPUCFSQuotaPeriod: cfg.CPUCFSQuotaPeriod,
		SingleProcessOOMKill: cfg.SingleProcessOOMKill, LimitedSwap: cfg.Resize.Swap, Standalone: cfg.Standalone,
		NoEnvFiles: cfg.NoEnvFiles, NoHostnameOverride: cfg.NoHostnameOverride, NoStopSignals: cfg.NoStopSignals,
	}, criconfig.Deps{
		Objects: s.objects, Volumes: s.volumes, Images: s.runtime, Cgroups: s.cgroups, HostIPs: s.hostIPs, UserNamespaces: s.users,
		Allocatable: s.allocatable, Capacity: s.capacity, Handlers: s.handlers, Recorder: recorder{s.events},
		Written: s.hosts.Watch,
	})
	return execute.New(execute.Config{
		PodLogsDir: cfg.PodLogsDir, ContainerLogsDir: filepath.Join(filepath.Dir(cfg.PodLogsDir), "containers"),
	}, execute.Deps{
		Runtime: s.runtime, Observer: s.observer, Images: puller, Volumes: shownVolumes{s}, Cgroups: endedCgroups{s.cgroups, s.users}, EnsureCgroup: s.cgroups.Ensure,
		Materials: builder, Hooks: hook.New(hook.Deps{Exec: heldHooks{s.runtime, s.sessions}, Events: s.events, Metrics: s.metrics}), Finisher: s.statuses,
		Allocations: s.allocations, Ends: s.ends, Starts: limiter.New(limiter.Config{Acquired: s.idle.Begin}), Stops: limiter.New(limiter.Config{Acquired: s.idle.Begin}),
		Events: s.events, HostIPs: s.hostIPs, Metrics: s.deps.Metrics,
		Returns: func(uid types.UID) bool { return s.registry.Returns(uid) },
	})
}

// Register puts podsync's services on r.
func (s *Service) Register(r grpc.ServiceRegistrar) { s.server.Register(r) }

// Run works until ctx is done. The first part that fails ends it with its error.
func (s *Service) Run(ctx context.Context) error {
	release, err := s.holdMachine(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.readyMachine(logr.FromContextOrDiscard(ctx)); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	s.shareRoot(logr.FromContextOrDiscard(ctx)) // before anything below it is open
	s.probes.Load(logr.FromContextOrDiscard(ctx))
	s.ends.Load(logr.FromContextOrDiscard(ctx))
	s.standing.Load(logr.FromContextOrDiscard(ctx))
	s.loadAllocations(logr.FromContextOrDiscard(ctx))
	group, ctx := errgroup.WithContext(ctx)
	part := func(name string, run func(context.Context) error) {
		group.Go(func() error {
			err := run(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				err = errors.New("it returned though nobody asked it to stop")
			}
			return fmt.Errorf("podsync: %s: %w", name, err)
		})
	}
	part("objects", s.objects.Run)
	part("probes", s.probes.Run)
	part("conditions", s.standing.Run)
	part("ends of pods", s.ends.Run)
	part("hosts files", s.hosts.Run)
	if s.cfg.IPTablesUtilChains {
		part("chains of iptables", s.firewall().Run)
	}
	part("exec sessions", s.sessions.Run)
	part("events", s.events.Run)
	part("volumes", s.volumes.Run)
	part("mirrors", s.mirrors.Run)
	part("statuses", s.statuses.Run)
	part("node", s.followNode)
	part("node object", s.readNode)
	part("node addresses", s.followAddresses)
	part("workers", s.registry.Run)
	part("runtime", s.observer.Run)
	part("log rotation", s.rotator.Run)
	part("image collection", s.collector.Run)
	if s.pulls != nil {
		group.Go(func() error { s.recoverPulls(ctx); return nil })
	}
	part("sources", func(ctx context.Context) error { return s.sources.Run(ctx, s.registry) })
	if s.sendTraces != nil {
		part("traces", s.sendTraces)
	}
	if s.cfg.PodsAPISocket != "" {
		part("pods API", s.servePods)
	}
	return group.Wait()
}
