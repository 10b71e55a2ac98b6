// Package daemon is the one shape of all polylet processes: its socket, the
// services that every process answers, readiness, supervision by systemd, and
// an orderly stop. It must never know what a service does.
package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
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
)

// DefaultSocketDir is where the sockets are when nothing else is said.
const DefaultSocketDir = "/run/polylet"

// Access is who may call an RPC that changes something; see rpc.Access.
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
	// Mutating says who may call which RPC that changes something, by full
	// method name.
	Mutating map[string]Access
	// Operators may, beside root, call SetLogLevel and GetProfile: the
	// gateway, through which people do.
	Operators Access
	// ExtraRegistries are served by GetMetrics beside the main one, by name.
	ExtraRegistries map[string]prometheus.Gatherer
	// ConfigJSON returns the configuration in effect; nil serves "{}".
	ConfigJSON func() []byte
	// ConfigOrigins says who has set a field of it, by name; nil knows of none.
	ConfigOrigins func() map[string]string
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
	checks   []Check
	stopping context.Context
	stop     context.CancelFunc
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
	d.checks = []Check{{Name: "log", Run: logsAreWritten}}
	d.tracker = health.NewTracker(d.log)
	d.tracker.OnTransition(d.showHealth)
	if err := d.collectProcess(); err != nil {
		return nil, err
	}
	d.buildServer()
	return d, nil
}

func (d *Daemon) buildServer() {
	mutating := map[string]Access{
		commonv1.CommonService_SetLogLevel_FullMethodName: d.opts.Operators,
		commonv1.CommonService_GetProfile_FullMethodName:  d.opts.Operators,
	}
	for method, access := range d.opts.Mutating {
		mutating[method] = access
	}
	d.server = rpc.NewServer(rpc.ServerConfig{Log: d.log, Mutating: mutating, Stopping: d.stopping})
	healthgrpc.RegisterHealthServer(d.server, d.health)
	reflection.Register(d.server)
	channelz.RegisterChannelzServiceToServer(d.server)
	commonv1.RegisterCommonServiceServer(d.server, &common{daemon: d})
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

// SocketPath returns where a service's socket is.
func (d *Daemon) SocketPath(service string) string {
	return filepath.Join(d.opts.SocketDir, service+".sock")
}

// Dial returns a lazy connection to another service; see rpc.Dial.
func (d *Daemon) Dial(peer string) (*grpc.ClientConn, error) { return rpc.Dial(d.SocketPath(peer)) }

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
