// Package gateway is the gateway process: it serves the kubelet's HTTP API on
// its three ports, authenticates and authorises, and gets everything that it
// answers from the other four processes, also who somebody is and what they may.
// It holds no state that matters, no privilege and no credential of the node:
// sockets of the others are all it needs. It must never touch the
// runtime, the host's files or a cgroup.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"

	gatewayv1 "github.com/polylet/polylet/api/gen/polylet/gateway/v1"
	"github.com/polylet/polylet/internal/clientmetrics"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/access"
	"github.com/polylet/polylet/services/gateway/internal/componentmetrics"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
	"github.com/polylet/polylet/services/gateway/internal/httpmetrics"
	"github.com/polylet/polylet/services/gateway/internal/inflight"
	"github.com/polylet/polylet/services/gateway/internal/librarymetrics"
	"github.com/polylet/polylet/services/gateway/internal/listen"
	"github.com/polylet/polylet/services/gateway/internal/peer"
	"github.com/polylet/polylet/services/gateway/internal/pki"
	"github.com/polylet/polylet/services/gateway/internal/server"
)

// Registry is both ends of the process's main registry.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Deps is what the service is given.
type Deps struct {
	// Metrics is the process's main registry; it is part of /metrics.
	Metrics Registry
	// Health gets the readiness of the four; nil reports to nobody.
	Health health.Reporter
	// Log gets what happens while the service is built.
	Log logr.Logger
	// Podsync, Probes, Stats and Nodestatus are connections to the sockets, and
	// Self is one to the gateway's own.
	Podsync, Probes, Stats, Nodestatus, Self grpc.ClientConnInterface
	// Trace puts spans around what the API with TLS serves; nil puts none.
	Trace func(http.Handler) http.Handler
}

// Service is the gateway without its socket. See New.
type Service struct {
	deps      Deps
	server    *server.Server
	listeners []*listen.Listener
	runs      atomic.Uint64 // of nodestatus, after its first
}

// New builds the service from the files that Config names; it opens no port.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := errors.Join(cfg.validate(), deps.validate()); err != nil {
		return nil, err
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Log.GetSink() == nil {
		deps.Log = logr.Discard()
	}
	if cfg.Limits == nil {
		defaults := listen.DefaultLimits()
		cfg.Limits = &defaults
	}
	meter, err := httpmetrics.New(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of the gateway: %w", err)
	}
	if err := librarymetrics.Register(deps.Metrics); err != nil {
		return nil, fmt.Errorf("gateway: register the metrics of client certificates: %w", err)
	}
	if err := componentmetrics.Register(deps.Metrics, cfg.FeatureGates); err != nil {
		return nil, fmt.Errorf("registering what the gateway is: %w", err)
	}
	s := &Service{deps: deps}
	routes, err := newRoutes(cfg, deps, meter)
	if err != nil {
		return nil, err
	}
	if err := s.listen(cfg, routes, meter); err != nil {
		return nil, err
	}
	s.server = server.New(s.listeners, meter.Sessions)
	return s, nil
}

func (d Deps) validate() error {
	var errs []error
	if d.Metrics == nil {
		errs = append(errs, errors.New("gateway: Deps.Metrics is nil: a registry is needed"))
	}
	for name, conn := range map[string]grpc.ClientConnInterface{
		"Podsync": d.Podsync, "Probes": d.Probes, "Stats": d.Stats, "Nodestatus": d.Nodestatus, "Self": d.Self,
	} {
		if conn == nil {
			errs = append(errs, fmt.Errorf("gateway: Deps.%s is nil: a connection to its socket is needed", name))
		}
	}
	return errors.Join(errs...)
}

// listen describes the ports in order of the kubelet's numbers.
func (s *Service) listen(cfg Config, r *routes, meter *httpmetrics.Meter) error {
	add := func(name, address string, h http.Handler, t *listen.TLS) *listen.Listener {
		l := listen.New(listen.Config{Name: name, Address: address, Handler: h, TLS: t, Limits: *cfg.Limits, Dropped: meter.Dropped(name)})
		s.listeners = append(s.listeners, l)
		return l
	}
	// A browser on this machine reaches the ports on loopback.
	plain := func(address string, h http.Handler) http.Handler {
		if onLoopback(address) {
			return httperror.OnlyOwnHost(cfg.NodeName, h)
		}
		return h
	}
	if cfg.HealthzAddress != "" {
		add("healthz", cfg.HealthzAddress, plain(cfg.HealthzAddress, r.ping()), nil)
	}
	if cfg.PageAddress != "" {
		add("page", cfg.PageAddress, r.page(), nil).Optional(s.pageMissing(cfg.PageAddress))
	}
	if cfg.SecureAddress != "" {
		filter, secured, err := secure(cfg, s.deps, s.runs.Load)
		if err != nil {
			return err
		}
		add("secure", cfg.SecureAddress, inflight.NewHeaders(headers()).Wrap(filter.Wrap(traced(s.deps, meter.Count(true, r.secure())))), secured)
	}
	if cfg.ReadOnlyAddress != "" {
		add("read-only", cfg.ReadOnlyAddress, plain(cfg.ReadOnlyAddress, inflight.NewHeaders(openHeaders()).Wrap(meter.Count(false, r.readOnly()))), nil)
	}
	return nil
}

// traced gives requests whose caller is known and may ask a span each.
func traced(deps Deps, next http.Handler) http.Handler {
	if deps.Trace == nil {
		return next
	}
	return deps.Trace(next)
}

// onLoopback says whether host:port is reached from this machine only.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// reviews is how many questions to the apiserver may be under way at once.
func reviews() inflight.ReviewsConfig {
	return inflight.ReviewsConfig{Most: 128, MostOfOne: 32, KnownOnly: 32}
}

// headers is what the requests of the secure port may hold. Of those who are known: all
// the long ones of streams that one apiserver may have open, and as much besides. Of
// unknown clients: more than wait for what their tokens are.
func headers() inflight.HeadersConfig {
	return inflight.HeadersConfig{
		Known:   inflight.Share{Most: 128 << 20, MostOfOne: 96 << 20},
		Unknown: inflight.Share{Most: 80 << 20, MostOfOne: 48 << 20},
		Each:    16 << 10, Of: whose,
	}
}

// openHeaders is what those of the read-only port may hold, who all are unknown clients.
func openHeaders() inflight.HeadersConfig {
	return inflight.HeadersConfig{Unknown: inflight.Share{Most: 32 << 20, MostOfOne: 16 << 20}, Each: 16 << 10, Of: whose}
}

// whose is whose a request is: an address's, or that of the name in a good certificate,
// whatever else comes from its address.
func whose(r *http.Request) (name string, known bool) {
	name, known = listen.Whose(r.Context())
	if name != "" {
		return "certificate of " + name, known
	}
	return inflight.HostOf(r.RemoteAddr), known
}

// serverTTL is the series that alerts on the serving certificate look at.
func serverTTL(end func() time.Time) prometheus.Collector {
	return clientmetrics.CertificateTTL("kubelet_certificate_manager_server_ttl_seconds",
		"[ALPHA] Seconds until the serving certificate of the node's API ends; negative when it has. +Inf when there is none.", end)
}

// secure is who may pass on the secure port and what it speaks. runs counts nodestatus's.
func secure(cfg Config, deps Deps, runs func() uint64) (access.Filter, *listen.TLS, error) {
	serving, err := pki.Load(pki.Config{
		CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, Wait: cfg.WaitForCert,
		FallbackCertFile: cfg.FallbackCertFile, FallbackKeyFile: cfg.FallbackKeyFile, Hosts: cfg.CertHosts,
	}, deps.Log)
	if err != nil {
		return access.Filter{}, nil, err
	}
	if deps.Metrics != nil {
		if err := deps.Metrics.Register(serverTTL(serving.NotAfter)); err != nil {
			return access.Filter{}, nil, fmt.Errorf("gateway: register metrics: %w", err)
		}
	}
	asked, err := access.NewMetrics(deps.Metrics)
	if err != nil {
		return access.Filter{}, nil, fmt.Errorf("gateway: register the metrics of authentication and authorisation: %w", err)
	}
	config := &listen.TLS{Serving: serving, MinVersion: cfg.MinTLSVersion, CipherSuites: cfg.CipherSuites, Curves: cfg.Curves}
	var clients access.CA
	if cfg.ClientCAFile != "" {
		ca, err := pki.LoadClientCA(cfg.ClientCAFile, deps.Log)
		if err != nil {
			return access.Filter{}, nil, err
		}
		clients, config.ClientCA = ca, ca
	}
	var reviewer access.Reviewer
	if !cfg.Standalone {
		reviewer = peer.NewNodestatus(rpc.WaitForReady(deps.Nodestatus, readyTimeout))
	}
	familiar := &access.Familiar{}
	authn, authz := access.New(access.Config{
		Anonymous: cfg.Anonymous, WebhookAuthentication: cfg.WebhookAuthentication, TokenTTL: cfg.TokenCacheTTL,
		AlwaysAllow: cfg.AlwaysAllow, AllowTTL: cfg.AllowCacheTTL, DenyTTL: cfg.DenyCacheTTL,
		Begin: inflight.NewReviews(reviews()).Begin, Familiar: familiar,
		Trusted: func(ctx context.Context) bool { _, known := listen.Whose(ctx); return known },
		Metrics: asked, Runs: runs,
	}, reviewer, clients)
	attributes := access.Attributes{NodeName: cfg.NodeName, CompatibleStreamVerbs: cfg.CompatibleStreamVerbs}
	return access.Filter{
		Authenticator: authn, Authorizer: authz, Attributes: attributes,
		Admitted: listen.Trust, Familiar: familiar,
	}, config, nil
}

// Register puts GatewayService on r. Call it before serving.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	gatewayv1.RegisterGatewayServiceServer(r, s.server)
}

// Addresses are host:port of the ports by name (secure, read-only, healthz, page),
// with real numbers once they are open.
func (s *Service) Addresses() map[string]string {
	out := make(map[string]string, len(s.listeners))
	for _, l := range s.listeners {
		out[l.Name] = l.Address()
	}
	return out
}

// Ready waits until all ports are open; the error is ctx's.
func (s *Service) Ready(ctx context.Context) error {
	for _, l := range s.listeners {
		select {
		case <-l.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Run serves until ctx is done; nil then. A port that cannot be opened ends it
// with an error; the other processes may come and go.
func (s *Service) Run(ctx context.Context) error {
	group := daemon.NewGroup(ctx, service.Gateway)
	for name, conn := range map[string]grpc.ClientConnInterface{
		service.Podsync: s.deps.Podsync, service.Probes: s.deps.Probes, service.Stats: s.deps.Stats, service.Nodestatus: s.deps.Nodestatus,
	} {
		came, first := func() {}, true
		if name == service.Nodestatus {
			came = func() {
				if !first { // in which something may have been asked already
					s.runs.Add(1)
				}
				first = false
			}
		}
		group.Once("connection to "+name, func(ctx context.Context) error {
			peer.Watch(ctx, name, conn, s.deps.Health, came)
			return nil
		})
	}
	for _, l := range s.listeners {
		group.Go("port "+l.Name, l.Run)
	}
	return group.Wait()
}

// gather gets the families of the process's own registry.
func gather(g prometheus.Gatherer) func(context.Context) ([]*dto.MetricFamily, error) {
	return func(context.Context) ([]*dto.MetricFamily, error) { return g.Gather() }
}
