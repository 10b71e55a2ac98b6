// Package podsync makes what runs on the node equal to what is wanted: it takes
// pods from the apiserver and from files, runs them through a container
// runtime, and reports their state. It is the only service that changes the
// host. It must never know another service; they ask it.
package podsync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/podsync/internal/cluster/nodeinfo"
	"github.com/polylet/polylet/services/podsync/internal/desired/mirror"
	"github.com/polylet/polylet/services/podsync/internal/host/alone"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/logrotate"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
	"github.com/polylet/polylet/services/podsync/internal/server"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
)

// Service is podsync.
type Service struct {
	cfg      Config
	deps     Deps
	parts    []part
	loads    []func(logr.Logger)
	events   *event.Recorder
	pods     *podcache.Pods
	probes   *probestore.Board
	mirrors  *mirror.Keeper
	node     *nodeinfo.Node
	observer *observe.Observer
	server   *server.Server

	collector *imagegc.Collector
	rotator   *logrotate.Rotator
}

// part is what runs beside the others.
type part struct {
	name string
	run  func(context.Context) error
	// once: it may end before the others.
	once bool
}

// New wires podsync up. It starts nothing and touches nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Runtime == nil || deps.Images == nil {
		return nil, errors.New("podsync: Deps.Runtime and Deps.Images must be set")
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Events == nil {
		deps.Events = deps.Client
	}
	if deps.Mounter == nil {
		deps.Mounter = mount.New(mount.Config{Devices: filepath.Join(cfg.RootDir, "polylet", "devices")})
	}
	w := &wiring{cfg: cfg, deps: deps}
	if err := w.build(); err != nil {
		return nil, err
	}
	return &Service{
		cfg: cfg, deps: deps, parts: w.parts, loads: w.loads, events: w.events, pods: w.shown, probes: w.probes, mirrors: w.mirrors, node: w.node, observer: w.observer, server: w.server,
		collector: w.collector, rotator: w.rotator,
	}, nil
}

// Change takes what of a Config can change while podsync runs: the limits of images
// (GCHighPercent, GCLowPercent, MinAge, MaxAge) and of logs (MaxSizeBytes, MaxFiles).
// Safe for concurrent use.
func (s *Service) Change(images ImagesConfig, logs LogsConfig) {
	s.collector.SetLimits(imagegc.Limits{HighPercent: images.GCHighPercent, LowPercent: images.GCLowPercent, MinAge: images.MinAge, MaxAge: images.MaxAge})
	s.rotator.SetLimits(logs.MaxSizeBytes, logs.MaxFiles)
}

// Register puts podsync's services on r.
func (s *Service) Register(r grpc.ServiceRegistrar) { s.server.Register(r) }

// SyncLoop says that the loop that looks at the runtime has not gone round for
// longer than longest; nil while it goes round, and before it runs.
func (s *Service) SyncLoop(longest time.Duration) error {
	r := s.observer.Runtime()
	return r.Stuck(time.Now(), longest)
}

// Run works until ctx is done. The first part that fails ends it with its error.
func (s *Service) Run(ctx context.Context) error {
	if policy := s.cfg.Machine; policy != nil {
		release, err := alone.Hold(ctx, s.cfg.RootDir)
		if err != nil {
			return err
		}
		defer release()
		if err := (kernel.Machine{}).MakeReady(klog.FromContext(ctx), policy.kernel(), s.events, s.deps.Health); err != nil {
			return err
		}
	}
	if err := s.makeDirs(); err != nil {
		return err
	}
	s.openToPlugins(klog.FromContext(ctx))
	mount.ShareRoot(klog.FromContext(ctx), s.deps.Mounter, s.cfg.RootDir, s.deps.Health) // before anything below it is open
	for _, load := range s.loads {
		load(klog.FromContext(ctx))
	}
	group := daemon.NewGroup(ctx, service.Podsync)
	for _, p := range s.parts {
		if p.once {
			group.Once(p.name, p.run)
		} else {
			group.Go(p.name, p.run)
		}
	}
	return group.Wait()
}

// makeDirs makes the directories that podsync's parts lie in.
func (s *Service) makeDirs() error {
	for dir, mode := range map[string]os.FileMode{
		filepath.Join(s.cfg.RootDir, "pods"):    0o750,
		filepath.Join(s.cfg.RootDir, "plugins"): 0o750, // of CSI drivers, which want it to be there
		filepath.Join(s.cfg.RootDir, "polylet"): 0o750,
		s.cfg.Logs.Dir:                          0o755,
		s.cfg.linksDir():                        0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// openToPlugins has plugins in containers use the directories that are there for them.
func (s *Service) openToPlugins(log klog.Logger) {
	dirs := []string{filepath.Join(s.cfg.RootDir, "plugins")}
	if registry := s.cfg.PluginsDir; registry != "" {
		dirs = append(dirs, registry)
		_ = os.MkdirAll(registry, 0o750) // whoever looks for plugins there says why it is not
	}
	if err := selinux.NewHost().OpenToPlugins(dirs...); err != nil {
		log.Info("Plugins in containers without privileges might not work", "err", err)
	}
}

// linksDir holds links to the containers' logs.
func (c *Config) linksDir() string { return filepath.Join(filepath.Dir(c.Logs.Dir), "containers") }

// stateFile is where podsync keeps something over a restart.
func (c *Config) stateFile(name string) string { return filepath.Join(c.RootDir, "polylet", name) }
