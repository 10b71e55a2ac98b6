package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/liveconf/assigned"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
	"github.com/polylet/polylet/internal/wake"
)

const (
	// sliceFile is a service's configuration, in its directory of copies.
	sliceFile = "slice.json"
	// stateFile is how the configuration stands, in nodestatus's.
	stateFile = "config-state.json"
	// requestFile is what a person asks polylet run for, in the directory of kept
	// configurations.
	requestFile = "request"
)

// What a person may ask for in requestFile.
const (
	requestRollback = "rollback"
	requestRetry    = "retry"
)

// keptDir is where polylet run keeps configurations.
func keptDir(rootDir string) string { return filepath.Join(rootDir, "polylet", "configuration") }

// handed is the configuration that the services get at their next start.
type handed struct {
	loaded     *kubeletconfig.Loaded
	generation uint64
}

// loadOrLast is kubeletconfig.Load for polylet run: where the files cannot be used and a
// configuration was good before, it is that one. Files that are not there are no edit
// that went wrong: the machine is no node yet, or no more.
func loadOrLast(args []string) (*kubeletconfig.Loaded, error) {
	loaded, err := kubeletconfig.Load(args)
	if err == nil || errors.Is(err, kubeletconfig.ErrHelp) || errors.Is(err, kubeletconfig.ErrVersion) || errors.Is(err, fs.ErrNotExist) {
		return loaded, err
	}
	flags, flagErr := kubeletconfig.FlagsOf(args)
	if flagErr != nil || !flags.LiveConfig {
		return nil, err
	}
	if good := liveconf.LastKnownGood(keptDir(flags.RootDir), args); good != nil {
		return good, nil
	}
	return nil, err
}

// live joins polylet run's children with the controller of the configuration.
type live struct {
	node       *nodeRun
	controller *liveconf.Controller
	identities map[string]supervise.Identity
	restart    func(service string) error
	change     func(service string) error // nil: Put has written all that there is to write
	// processors is what a service's process has had of them.
	processors func(service string) (schedstat.Times, bool)
	// cluster is what the cluster assigns; nil: it is no source.
	cluster *assigned.Source
	shown   wake.Signal // what is to be shown of it may be another
	// seen are the services' lives, where nobody tells of their ends; nil: somebody does.
	seen *lives
}

// chooseConfiguration has the controller say with what the node starts. first is what
// the flags and files said, or the last known good configuration. running: the services
// run already, with what an earlier owner has handed them.
func (n *nodeRun) chooseConfiguration(first *kubeletconfig.Loaded, check func(*kubeletconfig.Loaded) error, running bool) (*live, error) {
	flags := first.Flags // with the users that were taken
	loadOver := func(over *kubeletconfig.Over) (*kubeletconfig.Loaded, error) {
		next, err := kubeletconfig.LoadOver(first.Args, over)
		if err != nil {
			return nil, err
		}
		next.Flags = flags
		return next, next.RefuseOpen()
	}
	load := func() (*kubeletconfig.Loaded, error) { return loadOver(nil) }
	l := &live{node: n, shown: wake.New()}
	var over liveconf.Over
	if flags.DynamicConfigDir != "" {
		if err := l.openCluster(&flags, loadOver, check); err != nil {
			return nil, err
		}
		load, over = l.cluster.Load, l.cluster
	}
	l.controller = liveconf.New(liveconf.Config{
		Over: over, Dir: keptDir(flags.RootDir), Node: n.loaded.NodeName, Args: first.Args, Services: n.services, Deadline: flags.ConfigDeadline,
		Load: load, Check: check, Running: running, Answers: l.asksApiserver(flags.Kubeconfig), Build: buildinfo.Get().String(), Log: n.log.WithName("configuration"),
	})
	sources, err := first, error(nil)
	if first.Handed() || n.handed.Load() != nil || over != nil { // which the files did not say, or not all of it
		sources, err = load()
	}
	chosen, generation, err := l.controller.Start(sources, err)
	if err != nil {
		return nil, err
	}
	l.runs(chosen)
	n.hand(chosen, generation, flags)
	return l, nil
}

// hand makes a configuration the one that the services get when they start.
func (n *nodeRun) hand(loaded *kubeletconfig.Loaded, generation uint64, flags kubeletconfig.Flags) {
	loaded.Flags = flags
	n.handed.Store(&handed{loaded: loaded, generation: generation})
}

// current is the configuration that the services get.
func (n *nodeRun) current() *kubeletconfig.Loaded {
	if h := n.handed.Load(); h != nil {
		return h.loaded
	}
	return n.loaded
}

// writeSlice writes what a service gets, and returns the flag that names it.
func (n *nodeRun) writeSlice(name string, identity supervise.Identity) (string, error) {
	dir, gid, mode := n.copyDir(name), -1, os.FileMode(copyMode)
	if identity.Drop {
		gid = identity.GID
	}
	if err := ownDir(dir, gid); err != nil {
		return "", err
	}
	secret := name == service.Podsync // which sends the headers
	if secret {
		mode = 0o600
	}
	path := filepath.Join(dir, sliceFile)
	for {
		h := n.handed.Load()
		raw, err := json.Marshal(kubeletconfig.NewSlice(h.loaded, h.generation, configslice.Checksum(h.loaded.Fields(), name), secret))
		if err != nil {
			return "", fmt.Errorf("encode the configuration of %s: %w", name, err)
		}
		if err := fsatomic.WriteFileOwned(path, raw, mode, -1, gid); err != nil {
			return "", err
		}
		// A newer one that came meanwhile was written before this one.
		if n.handed.Load() == h {
			return "--config-slice=" + path, nil
		}
	}
}

// Put implements liveconf.Node.
func (l *live) Put(loaded *kubeletconfig.Loaded, generation uint64) error {
	l.runs(loaded)
	asked := l.node.roots.isAsked()
	l.node.hand(loaded, generation, l.node.current().Flags)
	if !asked { // else it is followed: who has removed the directory may put another there
		l.node.roots.prepare()
	}
	if l.node.credentials != nil { // else the gateway is root here, and reads the originals
		l.node.credentials.loaded.Store(loaded)
	}
	var errs []error
	for _, service := range l.node.services {
		if l.seen != nil && l.seen.runsOther(service, loaded) {
			continue // it would end at once: Restart's turn
		}
		_, err := l.node.writeSlice(service, l.identities[service])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Restart implements liveconf.Node.
func (l *live) Restart(service string) error { return l.restart(service) }

// Change implements liveconf.Node.
func (l *live) Change(service string) error {
	if l.change == nil {
		return nil
	}
	return l.change(service)
}

// Processors implements liveconf.Node.
func (l *live) Processors(service string) (schedstat.Times, bool) { return l.processors(service) }

// mostOfAnAnswer is how much a service may say about itself, in bytes: this process is
// root's, and one that was taken over would end it with more.
const mostOfAnAnswer = 256 << 10

// dial connects to a service, whoever it runs as.
func (l *live) dial(service string) (*grpc.ClientConn, error) {
	identity := l.identities[service]
	return rpc.DialServer(uds.Path(l.node.loaded.Flags.SocketDir, service), func(uid uint32) bool {
		return identity.Drop && uid == uint32(identity.UID) //nolint:gosec // An id.
	})
}

// Ask implements liveconf.Node.
func (l *live) Ask(ctx context.Context, service string) (liveconf.Report, error) {
	conn, err := l.dial(service)
	if err != nil {
		return liveconf.Report{}, err
	}
	defer conn.Close()
	client := commonv1.NewCommonServiceClient(conn)
	info, err := client.GetInfo(ctx, &commonv1.GetInfoRequest{}, grpc.MaxCallRecvMsgSize(mostOfAnAnswer))
	if err != nil {
		return liveconf.Report{}, err
	}
	l.saw(service, info)
	report := liveconf.Report{Checksum: info.GetConfigChecksum(), Lacks: map[string]string{}, Unhealthy: map[string]string{}}
	if l.seen != nil && info.GetConfigGeneration() == 0 { // it reads the files itself: units of before, say
		report.Checksum = configslice.Checksum(l.node.current().Fields(), service)
	}
	for _, d := range info.GetDependencies() {
		if !d.GetReady() {
			report.Lacks[d.GetName()] = d.GetMessage()
		}
	}
	health, err := client.CheckHealth(ctx, &commonv1.CheckHealthRequest{}, grpc.MaxCallRecvMsgSize(mostOfAnAnswer))
	if err != nil {
		return report, err
	}
	for _, check := range health.GetChecks() {
		if !check.GetHealthy() {
			report.Unhealthy[check.GetName()] = check.GetMessage()
		}
	}
	return report, nil
}

// Say implements liveconf.Node: nodestatus shows it, and systemctl status.
func (l *live) Say(state liveconf.State) {
	text := oneLine(state.Text())
	if _, err := daemon.SdNotify(false, "STATUS="+strings.ToValidUTF8(text[:min(len(text), longestMessage)], "")); err != nil {
		l.node.log.Error(err, "Could not tell systemd how the configuration stands")
	}
	if err := l.writeForNodestatus(stateFile, state); err != nil {
		l.node.log.Error(err, "How the configuration stands cannot be shown")
	}
}

// run follows the files and people's wishes until ctx is done, or all has to start again.
func (l *live) run(ctx context.Context) error {
	flags, log := l.node.loaded.Flags, l.node.log
	go followFiles(ctx, log, func(dirs *directories) { wantConfiguration(dirs, &flags) }, l.controller.Changed)
	kept := keptDir(flags.RootDir)
	go followFiles(ctx, log, func(dirs *directories) { dirs.want(kept, requestFile) }, func() { l.serveRequest(filepath.Join(kept, requestFile)) })
	if l.cluster == nil {
		return l.controller.Run(ctx, l)
	}
	ctx, end := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer end()
	following.Go(func() { l.followCluster(ctx) })
	following.Go(func() { l.cluster.TakeIn(ctx, l.controller.Changed) })
	following.Go(func() { l.showCluster(ctx) })
	return l.controller.Run(ctx, l)
}

// oldWish is how old a wish may be: who asked for it when no polylet run was there has
// long done something else when the next one comes.
const oldWish = 5 * time.Minute

// takeRequest returns what a person asks for, once; empty: nothing.
func takeRequest(path string, now time.Time) string {
	info, err := os.Stat(path)
	if err != nil {
		return "" // there is none
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if os.Remove(path) != nil || now.Sub(info.ModTime()) > oldWish {
		return "" // it would be done again and again, or far too late
	}
	return strings.TrimSpace(string(raw))
}

func (l *live) serveRequest(path string) {
	switch wish := takeRequest(path, time.Now()); wish {
	case "":
	case requestRollback:
		l.controller.Back()
	case requestRetry:
		l.controller.Retry()
	default:
		l.node.log.Info("A wish that is not understood", "path", path, "message", wish)
	}
}

// wantConfiguration watches the files that --config and --config-dir lead to: links may
// be changed at any step, as those of a mounted ConfigMap are.
func wantConfiguration(dirs *directories, flags *kubeletconfig.Flags) {
	names := map[string][]string{}
	for path, steps := flags.ConfigFile, 0; path != "" && steps < 10; steps++ {
		dir := filepath.Dir(path)
		names[dir] = append(names[dir], filepath.Base(path), "..data")
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if path = target; !filepath.IsAbs(target) {
			path = filepath.Join(dir, target)
		}
	}
	for dir, wanted := range names {
		dirs.want(dir, wanted...)
	}
	if flags.ConfigDir != "" {
		dirs.want(flags.ConfigDir)
	}
}

// followFiles calls changed whenever what is wanted has changed and is quiet again, once
// at the beginning, and every minute, until ctx is done.
func followFiles(ctx context.Context, log klog.Logger, want func(*directories), changed func()) {
	dirs := newDirectories(log)
	defer dirs.close()
	want(dirs)
	dirs.look()
	timer := time.NewTimer(0) // it may have changed before it was watched
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-dirs.events():
			if dirs.saw(event) {
				timer.Reset(settle)
			}
		case err := <-dirs.errors():
			dirs.lost(err)
			timer.Reset(settle)
		case <-dirs.again.C:
			dirs.look()
			timer.Reset(settle)
		case <-timer.C:
			want(dirs)
			dirs.look()
			changed()
		}
	}
}
