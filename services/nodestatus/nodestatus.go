// Package nodestatus keeps the Node object: it registers the node, keeps its
// status and conditions, and renews its Lease; it gets the node's certificates and renews
// them; and with the node's credential it asks the apiserver for the gateway who somebody
// is and what they may.
//
// It owns what the control plane knows of the node, and which pod has to go when the
// node is short of something. It must never touch pods, the runtime or the host's
// cgroups: what it says comes from podsync and stats, and while one of them is away it
// says what it said before; a pod that has to go is podsync's to stop.
package nodestatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/nodeaddr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/nodestatus/internal/apiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/assigned"
	"github.com/polylet/polylet/services/nodestatus/internal/csinode"
	"github.com/polylet/polylet/services/nodestatus/internal/event"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
	"github.com/polylet/polylet/services/nodestatus/internal/judge"
	"github.com/polylet/polylet/services/nodestatus/internal/lease"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/nodelog"
	"github.com/polylet/polylet/services/nodestatus/internal/oomkill"
	"github.com/polylet/polylet/services/nodestatus/internal/peer"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
	"github.com/polylet/polylet/services/nodestatus/internal/review"
	"github.com/polylet/polylet/services/nodestatus/internal/server"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
	"github.com/polylet/polylet/services/nodestatus/internal/status"
)

const leaseNamespace = "kube-node-lease"

// Deps is what nodestatus is given.
type Deps struct {
	// Podsync and Stats are connections to these peers.
	Podsync, Stats grpc.ClientConnInterface
	// Client registers the Node and watches it; Heartbeat, which has no rate
	// limit, reports status and lease. Both nil: no apiserver.
	Client, Heartbeat kubernetes.Interface
	// Events sends Events, at a rate of its own; nil is Client.
	Events kubernetes.Interface
	// Reviews, which has no rate limit either, asks for the gateway who somebody
	// is and what they may; nil: nobody can be asked.
	Reviews kubernetes.Interface
	// Addresses is where the host's addresses come from; nil is this host.
	Addresses nodeaddr.Host
	// Shutdowns tells of the machine's; nil: who listens at the configuration's socket does.
	Shutdowns ShutdownLine
	// Credential is the node's for the apiserver; nil without one.
	Credential *kubeclient.Follower
	// Bootstrap makes a client to ask for a first certificate with; nil: there is
	// none.
	Bootstrap func() (kubernetes.Interface, error)
	// WriteKubeconfig is called at the start, and when there is another bootstrap kubeconfig
	// or client certificate; nil does nothing.
	WriteKubeconfig func() error
	// Metrics is the process's main registry; nil has none.
	Metrics prometheus.Registerer
	// Health is told of the peers and the apiserver.
	Health health.Reporter
	// Note is told of what is to be known and keeps nobody waiting; nil is told nothing.
	Note func(name, message string)
	// AskApiserver asks the apiserver whether it is there, without a credential and with
	// nothing of the configuration, and says why it gives no answer; nil: nobody can.
	AskApiserver func(context.Context) error
	// OnRepeatedFailure is called when a heartbeat failed twice in a row; nil
	// does nothing. The connections may be dead and are better closed.
	OnRepeatedFailure func()
}

// Service is the nodestatus process's job.
type Service struct {
	configuration *configurationMetrics
	podsync       *peer.Podsync
	stats         *peer.Stats
	addresses     peer.Addresses
	keeper        *status.Keeper
	evictions     *evict.Loop
	lease         *lease.Keeper
	// csiNode is nil without an apiserver, and csiDrivers is what it is told by.
	csiNode    *csinode.Keeper
	csiDrivers peer.CSIDrivers
	inUse      peer.VolumesInUse
	// assigned is nil where the cluster is no source of the configuration.
	assigned *assigned.Keeper
	// certificates are the parts that keep the node's and tell of them.
	certificates []part
	events       *event.Sender
	// shutdown is nil where pods end with the machine.
	shutdown *shutdown.Manager
	// kills are the kernel's, for lack of memory.
	kills  peer.Kills
	server *server.Server
}

// New wires the service; it starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	nodeConfig, err := cfg.node()
	if err != nil {
		return nil, err
	}
	if deps.Podsync == nil || deps.Stats == nil {
		return nil, errors.New("nodestatus: connections to podsync and stats are needed")
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Addresses == nil {
		deps.Addresses = nodeaddr.System()
	}
	metrics, err := statusMetrics(cfg, deps)
	if err != nil {
		return nil, err
	}
	store, pods := peer.NewStore(peer.Host()), peer.NewPods(deps.Podsync)
	s := &Service{
		stats:  peer.NewStats(deps.Stats, deps.Health, store, signalPeriod(cfg), nodeConfig.Thresholds),
		events: event.New(cfg.NodeName, nil),
	}
	if s.configuration, err = newConfigurationMetrics(deps.Metrics); err != nil {
		return nil, err
	}
	api := access(cfg, deps)
	if api != nil {
		s.events = event.New(cfg.NodeName, cmp.Or(deps.Events, deps.Client).CoreV1().Events(metav1.NamespaceAll))
	}
	judged := judge.New(judge.Config{Thresholds: nodeConfig.Thresholds, Transition: cfg.EvictionPressureTransitionPeriod}, store.Frame)
	s.podsync = peer.NewPodsync(deps.Podsync, deps.Health, store, cfg.NodeStatusUpdateFrequency, s.hear(judged))
	s.inUse = peer.VolumesInUse{Podsync: deps.Podsync, Store: store, Begins: s.podsync.AskNow}
	s.kills = peer.Kills{Stats: deps.Stats, Tell: oomkill.New(s.events, bootID()).Tell}
	s.keeper = status.New(status.Config{
		Node: nodeConfig, Register: cfg.RegisterNode, UpdateFrequency: cfg.NodeStatusUpdateFrequency,
		ReportFrequency: cfg.NodeStatusReportFrequency, StartEvents: startEvents(cfg),
	}, status.Deps{API: api, Store: store, Judge: judged, Events: s.events, Health: deps.Health, Metrics: metrics, OnRepeatedFailure: deps.OnRepeatedFailure, Saw: s.followAssigned(cfg, deps, api)})
	if s.evictions, err = s.evicting(cfg, deps, judged, store, pods); err != nil {
		return nil, err
	}
	if api != nil {
		s.keepBesideNode(cfg, deps, store)
	}
	s.addresses = peer.Addresses{Find: finder(nodeConfig, deps.Addresses), Health: deps.Health, Store: store, Existing: s.keeper.Addresses}
	if err := s.followShutdowns(cfg, deps, store, pods); err != nil {
		return nil, err
	}
	if err := s.keepCertificates(cfg, deps, store); err != nil {
		return nil, err
	}
	s.server = server.New(server.Deps{
		Keeper: s.keeper, Lease: s.lease, Events: s.events, Assigned: s.assigned, AskApiserver: deps.AskApiserver, Evictions: s.evictions, Logs: nodelog.NewDir(nodelog.Root), Reviews: review.New(cfg.NodeName, deps.Reviews),
	})
	return s, nil
}

// statusMetrics are those of the Node's status and of the node's credential; nil without a
// registry.
func statusMetrics(cfg Config, deps Deps) (*status.Metrics, error) {
	if deps.Metrics == nil {
		return nil, nil
	}
	metrics, err := status.NewMetrics(deps.Metrics, cfg.NodeName, time.Now(), bootTime())
	if err == nil {
		err = deps.Metrics.Register(clientTTL(deps.Credential))
	}
	if err != nil {
		return nil, fmt.Errorf("nodestatus: register metrics: %w", err)
	}
	return metrics, nil
}

// keepBesideNode makes what keeps the objects that belong to the Node: its Lease and its
// CSINode.
func (s *Service) keepBesideNode(cfg Config, deps Deps, store *peer.Store) {
	s.lease = lease.New(lease.Config{
		NodeName: cfg.NodeName, Duration: cfg.NodeLeaseDuration, Client: deps.Heartbeat.CoordinationV1().Leases(leaseNamespace),
		Nodes: deps.Heartbeat.CoreV1().Nodes(), NodeUID: s.keeper.UID, OnRepeatedFailure: deps.OnRepeatedFailure, Health: deps.Health,
	})
	s.csiNode = csinode.New(csinode.Config{
		NodeName: cfg.NodeName, Nodes: deps.Client.CoreV1().Nodes(), CSINodes: deps.Client.StorageV1().CSINodes(),
		NodeUID: s.keeper.UID, Health: deps.Health, Initialized: store.SetCSINode,
	})
	store.SetCSINode(csinode.NotInitialized)
	s.csiDrivers = peer.CSIDrivers{Podsync: deps.Podsync, Tell: s.csiNode.Tell}
}

// evicting is what acts when the node is short of something.
func (s *Service) evicting(cfg Config, deps Deps, judged *judge.Judge, store *peer.Store, pods *peer.Pods) (*evict.Loop, error) {
	var metrics *evict.Metrics
	if deps.Metrics != nil {
		var err error
		if metrics, err = evict.NewMetrics(deps.Metrics); err != nil {
			return nil, fmt.Errorf("nodestatus: register metrics: %w", err)
		}
	}
	return evict.New(evict.Config{LongestGrace: cfg.EvictionMaxPodGracePeriod, LocalLimits: !cfg.NoLocalStorage}, evict.Deps{
		Judge: judged, Podsync: pods, Stats: s.stats, Events: s.events, Moved: store.Moved(), Metrics: metrics,
	}), nil
}

// hear takes in what podsync says that it was told of pressure: the judgement goes on by
// it after a restart of this process, and a podsync that was restarted is told again.
func (s *Service) hear(judged *judge.Judge) func(told pressure.Told) {
	return func(told pressure.Told) {
		judged.Seed(told)
		if told.Time.IsZero() {
			s.evictions.Forgotten()
		}
	}
}

func startEvents(cfg Config) []node.Event {
	var out []node.Event
	for _, e := range cfg.StartEvents {
		out = append(out, node.Event{Type: e.Type, Reason: e.Reason, Message: e.Message})
	}
	return out
}

// signalPeriod is the longest time between two frames of signals: no longer than the
// kubelet leaves between two looks at them.
func signalPeriod(cfg Config) time.Duration {
	return min(max(cfg.NodeStatusUpdateFrequency, time.Second), 10*time.Second)
}

// access is that to the Node; nil without an apiserver.
func access(cfg Config, deps Deps) *apiserver.Node {
	if deps.Client == nil || deps.Heartbeat == nil {
		return nil
	}
	return &apiserver.Node{
		Name: cfg.NodeName, Client: deps.Client.CoreV1().Nodes(), Heartbeat: deps.Heartbeat.CoreV1().Nodes(),
		Timeout: min(cfg.NodeStatusUpdateFrequency, cfg.NodeLeaseDuration),
	}
}

func finder(cfg node.Config, host nodeaddr.Host) func(context.Context, []v1.NodeAddress) ([]v1.NodeAddress, error) {
	asked := nodeaddr.Config{NodeName: cfg.Name, NodeIP: cfg.NodeIP, ExternalCloud: cfg.ExternalCloud}
	return func(ctx context.Context, existing []v1.NodeAddress) ([]v1.NodeAddress, error) {
		return nodeaddr.Find(ctx, asked, host, existing)
	}
}

// Register puts NodeStatusService on a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	nodestatusv1.RegisterNodeStatusServiceServer(r, s.server)
}

// Run keeps Node and Lease until ctx is done; then it returns nil. It returns
// an error only when the configuration cannot work on this machine.
func (s *Service) Run(ctx context.Context) error {
	group := daemon.NewGroup(ctx, service.Nodestatus)
	group.Go("runtime", s.podsync.RunRuntime)
	group.Go("images", s.podsync.RunImages)
	group.Go("machine", s.stats.RunMachine)
	group.Go("eviction signals", s.stats.RunSignals)
	group.Go("volumes in use", s.inUse.Run)
	group.Go("addresses", s.addresses.Run)
	group.Go("node", s.keeper.Run)
	group.Go("pressure", s.evictions.RunPressure)
	group.Go("evictions", s.evictions.Run)
	group.Go("events", s.events.Run)
	group.Go("the kernel's kills", s.kills.Run)
	if s.lease != nil {
		group.Go("lease", s.lease.Run)
	}
	if s.csiNode != nil {
		group.Go("CSI drivers", s.csiDrivers.Run)
		group.Go("CSINode", s.csiNode.Run)
	}
	if s.assigned != nil {
		group.Go("the cluster's configuration", s.assigned.Run)
	}
	if s.shutdown != nil {
		group.Go("shutdown", s.shutdown.Run)
	}
	for _, part := range s.certificates {
		group.Go(part.name, part.run)
	}
	return group.Wait()
}
