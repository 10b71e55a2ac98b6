package main

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/logind"
	"github.com/polylet/polylet/internal/nodeshutdown"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
	"github.com/polylet/polylet/services/nodestatus"
)

// shutdownPart is what root does for a graceful shutdown, which nodestatus may not: it
// holds logind's lock.
type shutdownPart struct {
	loaded *kubeletconfig.Loaded
	group  string
	uid    int
	log    klog.Logger
}

// newShutdownPart returns nil where a shutdown is not to be delayed.
func newShutdownPart(loaded *kubeletconfig.Loaded, group string, nodestatus supervise.Identity, log klog.Logger) *shutdownPart {
	if shutdownPeriod(loaded) == 0 {
		return nil
	}
	part := &shutdownPart{loaded: loaded, group: group, log: log}
	if nodestatus.Drop {
		part.uid = nodestatus.UID
	}
	return part
}

// follow does so until ctx is done. Where it cannot, all else goes on, and nodestatus
// says that shutdowns are not followed.
func (s *shutdownPart) follow(ctx context.Context) {
	if s == nil {
		return
	}
	path := nodeshutdown.Socket(s.loaded.Flags.SocketDir)
	listener, err := uds.Listen(path, s.group)
	if err != nil {
		s.log.Error(err, "The machine's shutdown is not delayed: pods will be killed with it", "socket", path)
		return
	}
	s.warn(logind.Guarded())
	keeper := nodeshutdown.New(nodeshutdown.Config{
		Connect: func(ctx context.Context) (nodeshutdown.Logind, error) { return logind.Connect(ctx) },
		Period:  shutdownPeriod(s.loaded), UID: s.uid,
		StateFile: filepath.Join(s.loaded.Flags.RootDir, nodeshutdown.StateFile), DropIn: nodeshutdown.DropIn,
	})
	group := daemon.NewGroup(klog.NewContext(ctx, s.log), "shutdown")
	group.Go("logind", keeper.Run)
	group.Go("followers", func(ctx context.Context) error { return keeper.Serve(ctx, listener) })
	if err := group.Wait(); err != nil {
		s.log.Error(err, "The machine's shutdown is not delayed any more: pods will be killed with it")
	}
}

// warn says that the machine's bus has no rule of who may say that it goes down.
func (s *shutdownPart) warn(guarded bool) {
	if !guarded {
		s.log.Info("D-Bus lets every user of this machine say in logind's name that it goes down, which would end the pods. What others than root say is not heeded; " +
			"nor is, without that rule, what a program of root's says that ends at once: install deploy/systemd/polylet.dbus.conf as /usr/share/dbus-1/system.d/polylet.conf")
	}
}

// shutdownGroups are the configured groups of pods by priority; none: a shutdown is not
// delayed.
func shutdownGroups(loaded *kubeletconfig.Loaded) []nodestatus.ShutdownGroup {
	if !loaded.FeatureEnabled("GracefulNodeShutdown") {
		return nil
	}
	var byPriority []nodestatus.ShutdownGroup
	if loaded.FeatureEnabled("GracefulNodeShutdownBasedOnPodPriority") {
		for _, p := range loaded.Config.ShutdownGracePeriodByPodPriority {
			byPriority = append(byPriority, nodestatus.ShutdownGroup{Priority: p.Priority, Period: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
		}
	}
	return nodestatus.ShutdownGroups(byPriority, loaded.Config.ShutdownGracePeriod.Duration, loaded.Config.ShutdownGracePeriodCriticalPods.Duration)
}

// shutdownPeriod is how long a shutdown is to be delayed at most.
func shutdownPeriod(loaded *kubeletconfig.Loaded) (total time.Duration) {
	for _, g := range shutdownGroups(loaded) {
		total += g.Period
	}
	return total
}
