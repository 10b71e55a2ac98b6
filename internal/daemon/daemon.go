// Package daemon is the one shape of all polylet processes: its socket, the
// services that every process answers, readiness, supervision by systemd, and
// an orderly stop. It must never know what a service does.
package daemon

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	grpchealth "google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"k8s.io/klog/v2"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/tracing"
	"github.com/polylet/polylet/internal/uds"
)

// DefaultSocketDir is where the sockets are when nothing else is said.
const DefaultSocketDir = "/run/polylet"

// Access is who may call an RPC; see rpc.Access.
type Access = rpc.Access

// Options describe one process.
type Options struct {
	// Service is its name: podsync, probes, stats, nodestatus or gateway.
	Service string
	// NodeName is the node that the agent serves.
	NodeName string
	// SocketDir holds the sockets; DefaultSocketDir when empty.
	SocketDir string
	// SocketGroup may read from the socket: a name or a number; empty takes
	// the group "polylet" if it exists and else leaves the group as it is.
	SocketGroup string
	// Access says who may call which RPC of the service's own, by full method
	// name; Run fails when one of them is not in it. Who may call what every
	// process answers, the daemon knows.
	Access map[string]Access
	// Users are the services' users.
	Users rpc.Users
	// HiddenCallers; see rpc.ServerConfig.
	HiddenCallers bool
	// ExtraRegistries are served by GetMetrics beside the main one, by name.
	ExtraRegistries map[string]prometheus.Gatherer
	// ConfigJSON returns the configuration in effect; nil serves "{}".
	ConfigJSON func() []byte
	// SecretConfigJSON is ConfigJSON with what may be secret in it, for root and
	// the gateway; nil shows them ConfigJSON too.
	SecretConfigJSON func() []byte
	// ConfigOrigins says who has set a field of it, by name; nil knows of none.
	ConfigOrigins func() map[string]string
	// ConfigWithoutEffect are the settings that do not do what they say, a line
	// for each; nil knows of none.
	ConfigWithoutEffect func() []string
	// ConfigRuns says which configuration the process runs with by now, if somebody
	// counts them: config_generation and config_checksum of GetInfoResponse. Nil: nobody
	// does.
	ConfigRuns func() (generation uint64, checksum string)
	// Tracing sends spans of what the process calls and is asked for; nil sends
	// none. Service and NodeName are filled in.
	Tracing *tracing.Config
	// GCPercent is by how much the heap may grow between collections;
	// LeanGCPercent when 0. GOGC in the environment goes before.
	GCPercent int
	// Log is the process's logger; klog's when unset.
	Log logr.Logger
}

// Daemon is one process. Its parts are made with its Metrics, Health, Epoch,
// Server and Dial, and handed to Run.
type Daemon struct {
	opts     Options
	log      logr.Logger
	start    time.Time
	epoch    uint64
	registry *prometheus.Registry
	tracker  *health.Tracker
	health   *grpchealth.Server
	server   *grpc.Server
	access   map[string]Access
	checks   []Check
	tracing  *tracing.Provider
	stopping context.Context
	stop     context.CancelFunc
	// silent is since when the process has not answered itself, the zero time when it has:
	// the watchdog's own.
	silent time.Time
}

// New builds a process without opening anything.
func New(opts Options) (*Daemon, error) {
	if opts.Service == "" {
		return nil, fmt.Errorf("daemon: Options.Service is empty")
	}
	if opts.SocketDir == "" {
		opts.SocketDir = DefaultSocketDir
	}
	if opts.GCPercent == 0 {
		opts.GCPercent = LeanGCPercent
	}
	if opts.Log.GetSink() == nil {
		opts.Log = klog.Background()
	}
	d := &Daemon{
		opts:     opts,
		log:      opts.Log.WithName(opts.Service),
		start:    time.Now(),
		epoch:    rand.Uint64()>>1 | 1, // never 0, and positive as int64
		registry: prometheus.NewRegistry(),
		health:   grpchealth.NewServer(),
	}
	d.stopping, d.stop = context.WithCancel(context.Background())
	d.checks = []Check{{Name: "log", Run: newFlusher().logsAreWritten}}
	d.tracker = health.NewTracker(d.log)
	d.tracker.OnTransition(d.showHealth)
	if err := d.collectProcess(); err != nil {
		return nil, err
	}
	if opts.Tracing != nil {
		cfg := *opts.Tracing
		cfg.Service, cfg.NodeName = opts.Service, opts.NodeName
		var err error
		if d.tracing, err = tracing.New(context.Background(), cfg); err != nil {
			return nil, fmt.Errorf("%s: %w", opts.Service, err)
		}
	}
	d.buildServer()
	return d, nil
}

func (d *Daemon) buildServer() {
	d.access = commonAccess()
	maps.Copy(d.access, d.opts.Access)
	d.server = rpc.NewServer(rpc.ServerConfig{Log: d.log, Access: d.access, Users: d.opts.Users, HiddenCallers: d.opts.HiddenCallers, Stopping: d.stopping, Inner: []grpc.UnaryServerInterceptor{d.tracing.Server()}})
	healthgrpc.RegisterHealthServer(d.server, d.health)
	reflection.Register(d.server)
	channelz.RegisterChannelzServiceToServer(d.server)
	commonv1.RegisterCommonServiceServer(d.server, &common{daemon: d})
}

// Methods are all that the process serves, and who may call each. It fails when
// that was not said of one of them.
func (d *Daemon) Methods() (map[string]Access, error) {
	return maps.Clone(d.access), rpc.CheckAccess(d.server, d.access)
}

// Metrics is the main registry; Go's and the process's collectors are in it.
func (d *Daemon) Metrics() *prometheus.Registry { return d.registry }

// Health takes the state of the dependencies.
func (d *Daemon) Health() *health.Tracker { return d.tracker }

// Epoch is this start's random number; never 0.
func (d *Daemon) Epoch() uint64 { return d.epoch }

// Server is where services register, before Run. Health, reflection, channelz
// and CommonService are on it.
func (d *Daemon) Server() grpc.ServiceRegistrar { return d.server }

// Log is the process's logger, named after the service.
func (d *Daemon) Log() logr.Logger { return d.log }

// SocketPath returns where a service's socket is; see uds.Path.
func (d *Daemon) SocketPath(service string) string { return uds.Path(d.opts.SocketDir, service) }

// Dial returns a lazy connection to another service, which must be served by
// root or that service's user; see rpc.DialServer.
func (d *Daemon) Dial(peer string) (*grpc.ClientConn, error) {
	serves := func(uid uint32) bool {
		own, ok := d.opts.Users[peer]
		return ok && uid == own
	}
	return rpc.DialServer(d.SocketPath(peer), serves, d.tracing.Client())
}

// Tracing sends the process's spans; nil when tracing is off, which its methods
// take.
func (d *Daemon) Tracing() *tracing.Provider { return d.tracing }

// showHealth mirrors the dependencies into grpc.health.v1: each under its
// name, all together under the service's name. "" is the process itself: it is
// SERVING while it runs, since a lack of others is no reason to restart it.
func (d *Daemon) showHealth(dep health.Dependency) {
	d.health.SetServingStatus(dep.Name, serving(dep.Ready))
	all, _ := d.tracker.Ready()
	d.health.SetServingStatus(d.opts.Service, serving(all))
}

func serving(ok bool) healthgrpc.HealthCheckResponse_ServingStatus {
	if ok {
		return healthgrpc.HealthCheckResponse_SERVING
	}
	return healthgrpc.HealthCheckResponse_NOT_SERVING
}
