package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
)

// followSliceFlag has a service end when it is handed something else. The units have it
// where nothing has been handed out yet.
const followSliceFlag = "--follow-config-slice"

// errOnlyFollowed is for a handout that does not stay, where the files cannot be used.
var errOnlyFollowed = errors.New("the configuration cannot be used: polylet config validate says why; with --follow the last known good one is handed out")

// ownFlags are the services whose units have the node's flags; the others have all of
// theirs from here.
func ownFlags() []string { return []string{service.Podsync, service.Stats, service.Nodestatus} }

// handOutLive owns the configuration of services that a manager keeps running: it hands
// each its own, and one that uses what has changed ends by itself and is started again
// with it.
func handOutLive(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	log := klog.FromContext(ctx).WithName(handoutName)
	_, release, err := ownKept(ctx, keptDir(loaded.Flags.RootDir), "", log) // its services say whether they run
	if err != nil {
		return err
	}
	defer release()
	node, gid, err := newHandout(loaded, log)
	if err != nil {
		return err
	}
	node.services = service.ServersFirst()
	for running := node.anyRuns(); ; running = false {
		if err = node.handOutWhile(ctx, gid, running); !errors.Is(err, liveconf.ErrStartAgain) {
			return err
		}
		log.Info("All services start again with the last known good configuration", "err", err)
	}
}

// handOutWhile chooses a configuration, hands it out and follows the files.
func (n *nodeRun) handOutWhile(ctx context.Context, gid int, running bool) error {
	configuration, err := n.chooseConfiguration(n.loaded, nil, running) // podsync looks at the machine
	if err != nil {
		return err
	}
	if err := n.prepareFor(gid); err != nil {
		return err
	}
	if n.identities, err = identitiesOf(n.current(), gid, func(name string) bool { return n.loaded.ServiceUser(name) != "" }); err != nil {
		return err
	}
	configuration.identities, configuration.seen = n.identities, newLives()
	configuration.restart = func(service string) error { return configuration.handTo(ctx, service) }
	configuration.change = func(service string) error { return configuration.changeFor(ctx, service) }
	configuration.processors = processorsOfUnits()
	for _, service := range n.services {
		if err := configuration.handTo(ctx, service); err != nil {
			return err
		}
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		n.log.Error(err, "Could not tell systemd that the copies are there")
	}
	return followWhile(ctx, configuration, func(ctx context.Context) error {
		var group sync.WaitGroup
		if n.credentials != nil {
			group.Go(func() { n.credentials.follow(ctx) })
		}
		group.Go(func() { n.roots.follow(ctx) })
		group.Go(func() { n.shutdown.follow(ctx) })
		group.Wait()
		<-ctx.Done()
		return nil
	})
}

// cgroups2 is where systemd has the hierarchy of version 2.
const cgroups2 = "/sys/fs/cgroup"

// processorsOfUnits is what services had of processors by the cgroups of their units, which
// lie beside this process's: their processes cannot be seen from here. Nothing is known where
// there is no cgroup v2, or no unit.
func processorsOfUnits() func(service string) (schedstat.Times, bool) {
	text, _ := os.ReadFile("/proc/self/cgroup") // as without one
	beside := besideCgroup(string(text))
	return func(service string) (schedstat.Times, bool) {
		if beside == "" {
			return schedstat.Times{}, false
		}
		return schedstat.OfCgroup(filepath.Join(cgroups2, beside, "polylet-"+service+".service"))
	}
}

// besideCgroup is where what lies beside a process's cgroup of version 2 does, given
// /proc/PID/cgroup; empty: it has none.
func besideCgroup(text string) string {
	for line := range strings.Lines(text) {
		if own, unified := strings.CutPrefix(strings.TrimSpace(line), "0::"); unified {
			return filepath.Dir(own)
		}
	}
	return ""
}

// handTo writes what a service starts with. One that runs with something else sees it,
// and ends.
func (l *live) handTo(ctx context.Context, service string) error {
	l.seen.handed(service, l.node.current())
	return l.writeFor(ctx, service)
}

// changeFor is handTo for what a service takes while it runs.
func (l *live) changeFor(ctx context.Context, service string) error {
	l.seen.changed(service, l.node.current())
	return l.writeFor(ctx, service)
}

func (l *live) writeFor(ctx context.Context, name string) error {
	n := l.node
	switch identity := l.identities[name]; {
	case !slices.Contains(ownFlags(), name) && n.loaded.ServiceUser(name) == "":
		return noUser(name)
	case !slices.Contains(ownFlags(), name) && !identity.Drop:
		return nil // it is root, and reads the files
	case slices.Contains(ownFlags(), name):
		flag, err := n.writeSlice(name, l.identities[name])
		if err != nil {
			return err
		}
		line, err := environmentLine([]string{flag, followSliceFlag})
		if err != nil {
			return err
		}
		return fsatomic.WriteFile(filepath.Join(n.copyDir(name), argsFile), []byte(line), 0o640)
	}
	if name == service.Gateway {
		n.copyFor(name, l.identities[name])
	}
	return n.writeArgs(ctx, name, l.identities[name])
}

// copyFor has what the current configuration names copied for a service.
func (n *nodeRun) copyFor(service string, identity supervise.Identity) {
	if n.credentials == nil {
		n.credentials = newCredentials(n.log, n.current(), n.copyDir(service), identity)
		return
	}
	n.credentials.loaded.Store(n.current())
}

// noUser is why nothing is handed to a service.
func noUser(service string) error {
	return fmt.Errorf("there is no user polylet-%s: make it (systemd-sysusers with deploy/systemd/polylet.sysusers.conf), or name another (--%s-user)", service, service)
}

// lives are the services' lives, as they tell them themselves: nobody else does where a
// service manager keeps them.
type lives struct {
	mu     sync.Mutex
	epochs map[string]uint64
	sums   map[string]string // that were handed to each
	ending map[string]bool   // those whose next life was asked for
}

func newLives() *lives {
	return &lives{epochs: map[string]uint64{}, sums: map[string]string{}, ending: map[string]bool{}}
}

// handed notes what is handed to a service.
func (s *lives) handed(service string, loaded *kubeletconfig.Loaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := configslice.Checksum(loaded.Fields(), service)
	s.ending[service] = s.ending[service] || s.sums[service] != sum
	s.sums[service] = sum
}

// changed notes what is handed to a service that does not end for it.
func (s *lives) changed(service string, loaded *kubeletconfig.Loaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums[service] = configslice.Checksum(loaded.Fields(), service)
}

// runsOther says that a service was handed something else.
func (s *lives) runsOther(service string, loaded *kubeletconfig.Loaded) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums[service] != configslice.Checksum(loaded.Fields(), service)
}

// began notes a life of a service, and says whether the one before ended by itself.
func (s *lives) began(service string, epoch uint64) (died bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.epochs[service]
	if known && before == epoch {
		return false
	}
	s.epochs[service] = epoch
	died = known && !s.ending[service]
	delete(s.ending, service)
	return died
}

// errStartedAgain is how a service ended that nobody asked to.
var errStartedAgain = errors.New("it ended and was started again; its log says why")

// saw has the controller know of a service that ended by itself.
func (l *live) saw(service string, info *commonv1.GetInfoResponse) {
	if l.seen != nil && l.seen.began(service, info.GetEpoch()) {
		l.controller.Ended(service, errStartedAgain)
	}
}

// anyRuns says whether a service runs with what was handed to it before: each holds its
// directory.
func (n *nodeRun) anyRuns() bool {
	// A service manager may have taken away the directories with their holders' last owner.
	held := slices.ContainsFunc(n.services, func(service string) bool { return isHeld(n.copyDir(service)) })
	return held || isHeld(n.loaded.Flags.SocketDir)
}

// isHeld says whether somebody holds a directory (hold).
func isHeld(path string) bool {
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	return errors.Is(unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// runSlice runs a service until it is handed something else, or ctx is done. It holds the
// directory of its slice meanwhile, by which whoever hands it out next knows that it runs.
// One that was started before anything was handed to it reads the files, until something is.
func runSlice(ctx context.Context, service string, loaded *kubeletconfig.Loaded, run func(context.Context, *kubeletconfig.Loaded) error) error {
	log, followLog := klog.Background(), klog.Background()
	path, handedOther := loaded.Flags.ConfigSlice, func() bool { return loaded.Superseded() && !inPlaceOf(ctx).takes(log) }
	if !loaded.Handed() && path != "" {
		handedOther = func() bool { _, err := os.Stat(path); return err == nil }
	} else if path == "" {
		path = filepath.Join(loaded.Flags.SocketDir, service, argsFile)
		followLog = logr.Discard() // nothing need ever be there
		handedOther = func() bool { _, err := os.Stat(path); return err == nil }
	} else {
		for _, dir := range []string{filepath.Dir(path), loaded.Flags.SocketDir} {
			release, err := hold(ctx, dir)
			if err != nil {
				log.Error(err, "Who hands out the configuration may not see that this process runs", "directory", dir)
				continue
			}
			defer release()
		}
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		followFiles(ctx, followLog, func(dirs *directories) { dirs.want(filepath.Dir(path), filepath.Base(path)) }, func() {
			if ctx.Err() == nil && handedOther() {
				log.Info("Another configuration was handed to this service; it ends, to be started again with it")
				end()
			}
		})
	}()
	err := run(ctx, loaded)
	end()
	<-over
	return err
}

// looked bounds the wait for whoever looks whether a directory is held, for which it
// holds that itself.
const looked = 2 * time.Second

// hold holds a directory, beside others, until release is called.
func hold(ctx context.Context, path string) (release func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, looked)
	defer cancel()
	retry := backoff.New(backoff.Config{Initial: time.Millisecond, Max: 100 * time.Millisecond})
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			return func() { _ = dir.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || retry.Wait(ctx) != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
}
