// Package probes is the probes process: it runs the liveness, readiness and
// startup probes of the containers on this node. Targets come from podsync and
// results go there, over one stream. It holds nothing that must outlive it:
// podsync keeps the last result of each probe, and a restart goes on from it.
// It must never need root, the runtime's socket or a Kubernetes client.
package probes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/probes/internal/handler"
	"github.com/polylet/polylet/services/probes/internal/metrics"
	"github.com/polylet/polylet/services/probes/internal/outbox"
	"github.com/polylet/polylet/services/probes/internal/peer"
	"github.com/polylet/polylet/services/probes/internal/prober"
	"github.com/polylet/polylet/services/probes/internal/server"
)

// Deps is what the service is given.
type Deps struct {
	// Metrics is the process's main registry.
	Metrics prometheus.Registerer
	// ProbeMetrics is the registry of /metrics/probes; nothing else is on it.
	ProbeMetrics prometheus.Registerer
	// Health gets the readiness of "podsync", and of "sockets" when the probes find
	// none; nil reports to nobody.
	Health health.Reporter
	// Epoch is the process's random number of this start; never 0.
	Epoch uint64
	// Podsync is the connection to podsync's socket.
	Podsync grpc.ClientConnInterface
}

// Service is the probes process without its socket. See New.
type Service struct {
	engine *prober.Engine
	client *peer.Client
	server *server.Server
}

// New builds the service; it starts nothing and connects to nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := deps.validate(); err != nil {
		return nil, err
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = userAgent(buildinfo.KubernetesVersion)
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	meter, err := metrics.New(deps.ProbeMetrics, time.Now())
	if err != nil {
		return nil, err
	}
	box := outbox.New()
	handlers := handler.New(handler.Config{UserAgent: cfg.UserAgent, OnLack: (&sockets{health: deps.Health}).lack}, peer.NewCommander(deps.Podsync))
	eng := prober.New(handlers, box, meter)
	if err := deps.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "polylet_probes_targets",
		Help: "Number of probes that podsync wants run.",
	}, func() float64 { return float64(eng.Len()) })); err != nil {
		return nil, fmt.Errorf("registering the metrics of the probes process: %w", err)
	}
	return &Service{
		engine: eng,
		client: peer.New(peer.Deps{
			Conn: deps.Podsync, Epoch: deps.Epoch, Health: deps.Health, Targets: eng, Outbox: box,
		}),
		server: server.New(eng),
	}, nil
}

// userAgent turns "v1.36.6" into "kube-probe/1.36".
func userAgent(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return "kube-probe/" + version
	}
	return "kube-probe/" + parts[0] + "." + parts[1]
}

// Register puts ProbesService on r. Call it before serving.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	probesv1.RegisterProbesServiceServer(r, s.server)
}

// Run probes until ctx is done; nil then. podsync may come and go meanwhile.
func (s *Service) Run(ctx context.Context) error {
	group := daemon.NewGroup(ctx, service.Probes)
	group.Go("prober", s.engine.Run)
	group.Go("targets", s.client.Run)
	return group.Wait()
}
