package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	polyletdaemon "github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
	podsyncservice "github.com/polylet/polylet/services/podsync"
	"github.com/polylet/polylet/services/stats"
)

// launchCommand is the hidden command through which children start.
const launchCommand = "launch-child"

// takeOver bounds the wait for the sockets of a supervisor that was killed.
const takeOver = 5 * time.Second

func newRunCommand() *cobra.Command {
	return serviceCommandOf(runName, "Run all services as child processes (without systemd)", loadOrLast, func(ctx context.Context, loaded *kubeletconfig.Loaded) error {
		err := runNode(ctx, loaded)
		if errors.Is(err, liveconf.ErrStartAgain) {
			return startAgain(err)
		}
		return err
	})
}

// startAgain makes this process a new polylet run, with the same arguments and whoever
// started it.
func startAgain(why error) error {
	program, err := os.Executable()
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ()) //nolint:gosec // This program, with its own arguments.
	}
	return fmt.Errorf("%w; start polylet again: %w", why, err)
}

func newLaunchCommand() *cobra.Command {
	return &cobra.Command{
		Use:                launchCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return supervise.Launch(args) },
	}
}

// runNode is `polylet run`: the sockets are opened here and passed on, so that
// a service needs no right to create one, and a client that calls while a
// service restarts waits instead of being refused.
func runNode(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	if err := loaded.RefuseOpen(); err != nil {
		return err
	}
	log := klog.FromContext(ctx).WithName(runName)
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the executable to start the services with: %w", err)
	}
	if loaded.Flags.DynamicConfigDir != "" && !loaded.Flags.LiveConfig {
		return errClusterUnowned
	}
	if err := takeUsers(&loaded.Flags, log); err != nil {
		return err
	}
	node := &nodeRun{loaded: loaded, log: log, gid: loaded.Flags.SocketGroup}
	if node.services, err = chosen(loaded.Flags.Services); err != nil {
		return err
	}
	if err := node.checkMachine(loaded); err != nil && (loaded.Handed() || !loaded.Flags.LiveConfig) {
		return err
	}
	ctx, release, err := holdLock(ctx, loaded, log)
	if err != nil {
		return err
	}
	defer release()
	if err := node.prepare(); err != nil {
		return err
	}
	defer node.close()
	if slices.Contains(node.services, service.Podsync) {
		if err := podsyncservice.CheckAlone(ctx, loaded.Flags.RootDir); err != nil {
			return err
		}
	}
	var configuration *live
	if loaded.Flags.LiveConfig {
		killed, giveUp, err := ownKept(ctx, keptDir(loaded.Flags.RootDir), bootIDFile, log)
		if err != nil {
			return err
		}
		defer giveUp()
		if configuration, err = node.chooseConfiguration(loaded, node.checkMachine, killed); err != nil {
			return err
		}
	}
	children, err := node.children(ctx)
	if err != nil {
		return err
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Error(err, "Could not tell systemd that the node is starting")
	}
	go polyletdaemon.LeanMemory(ctx, polyletdaemon.LeanGCPercent)
	go node.credentials.follow(ctx)
	go node.roots.follow(ctx)
	go node.shutdown.follow(ctx)
	config := supervise.Config{Program: program, LaunchCommand: launchCommand, Output: os.Stderr, Log: log, Watchdog: time.Minute}
	if configuration == nil {
		return supervise.New(config, children).Run(ctx)
	}
	config.Ended = configuration.controller.Ended
	configuration.identities = node.identities
	supervisor := supervise.New(config, children)
	configuration.restart = supervisor.Restart
	configuration.processors = func(service string) (schedstat.Times, bool) { return schedstat.OfProcess(supervisor.Pid(service)) }
	return followWhile(ctx, configuration, supervisor.Run)
}

// followWhile follows the configuration while run does, until ctx is done or everything
// has to start again.
func followWhile(ctx context.Context, configuration *live, run func(context.Context) error) error {
	ctx, over := context.WithCancelCause(ctx)
	defer over(nil)
	var following sync.WaitGroup
	following.Go(func() {
		if err := configuration.run(ctx); err != nil {
			over(err)
		}
	})
	err := run(ctx)
	over(nil)
	following.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, liveconf.ErrStartAgain) {
		return cause
	}
	return err
}

// checkMachine fails when this machine cannot run pods with a configuration.
func (n *nodeRun) checkMachine(loaded *kubeletconfig.Loaded) error {
	if !slices.Contains(n.services, service.Podsync) {
		return nil
	}
	return podsyncservice.CheckMachine(*machinePolicy(loaded)) // podsync would say the same, again and again
}

// chosen are the services to supervise, in the order in which they start.
func chosen(wanted []string) ([]string, error) {
	var out []string
	for _, name := range service.ServersFirst() {
		if len(wanted) == 0 || slices.Contains(wanted, name) {
			out = append(out, name)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(out, name) {
			return nil, fmt.Errorf("--services: there is no %q; there are %v", name, service.ServersFirst())
		}
	}
	return out, nil
}

// nodeRun is one `polylet run`.
type nodeRun struct {
	// loaded is what it was started with; handed, when it is set, is what the services
	// get instead.
	loaded      *kubeletconfig.Loaded
	handed      atomic.Pointer[handed]
	identities  map[string]supervise.Identity
	log         klog.Logger
	gid         string
	services    []string
	sockets     map[string]*nodeSocket
	copies      []string
	credentials *credentials
	roots       *rootsPart
	shutdown    *shutdownPart
}

// prepare makes the socket directory and opens the sockets.
func (n *nodeRun) prepare() error {
	dir := n.loaded.Flags.SocketDir
	gid, err := uds.LookupGroup(n.gid)
	if err != nil {
		return fmt.Errorf("--socket-group: %w", err)
	}
	if err := ownSocketDir(dir, gid); err != nil {
		return fmt.Errorf("--socket-dir: %w", err)
	}
	n.sockets = map[string]*nodeSocket{}
	for _, service := range n.services {
		s := &nodeSocket{service: service, path: uds.Path(dir, service), group: n.gid, gid: gid, log: n.log}
		if err := s.open(); err != nil {
			return err
		}
		n.sockets[service] = s
	}
	return nil
}

// close removes the sockets and the copies of keys and configuration.
func (n *nodeRun) close() {
	for _, dir := range n.copies {
		if err := os.RemoveAll(dir); err != nil {
			n.log.Error(err, "Copies of configuration and keys stay behind", "directory", dir)
		}
	}
	for _, s := range n.sockets {
		s.close()
	}
}

// children describes the services that were chosen.
func (n *nodeRun) children(ctx context.Context) ([]supervise.Child, error) {
	gid, err := uds.LookupGroup(n.gid)
	if err != nil {
		return nil, err
	}
	identities, err := identitiesOf(n.loaded, gid, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	n.identities = identities
	n.roots = newRootsPart(n.current, identities[service.Nodestatus], n.log)
	n.roots.prepare()
	n.shutdown = newShutdownPart(n.current(), n.gid, identities[service.Nodestatus], n.log)
	n.credentials = newCredentials(n.log, n.current(), n.copyDir(service.Gateway), identities[service.Gateway])
	var children []supervise.Child
	for _, service := range n.services {
		identity := identities[service]
		if needsCopies(identity) || n.handed.Load() != nil {
			n.copies = append(n.copies, n.copyDir(service))
		}
		children = append(children, supervise.Child{
			Name: service, Identity: identity, Sockets: n.sockets[service].current,
			Input:    inputOf(service),
			PlainLog: func() bool { return n.current().Config.Logging.Format == "json" },
			Args:     func() ([]string, error) { return n.argsOf(ctx, service, identity) },
		})
	}
	return children, nil
}

// inputOf is what a service reads with rights that it has not: stats the kernel's log.
func inputOf(name string) string {
	if name == service.Stats {
		return stats.KernelLog
	}
	return ""
}

// needsCopies says whether a service cannot read the node's files where they are.
func needsCopies(identity supervise.Identity) bool {
	return identity.Drop && !slices.Contains(identity.Capabilities, unix.CAP_DAC_READ_SEARCH)
}

// argsOf are a service's command and flags. Every service gets the node's own
// flags and the users that were found; one that may not read the node's files
// gets copies of what it needs.
func (n *nodeRun) argsOf(ctx context.Context, name string, identity supervise.Identity) ([]string, error) {
	args := append([]string{name}, n.loaded.Args...)
	// The lock is held here, for all of them.
	args = append(args, "--lock-file=", "--exit-on-lock-contention=false")
	args = append(args, "--socket-group="+n.gid, "--hostname-override="+n.loaded.NodeName)
	for _, other := range service.Separate() {
		if who := n.loaded.ServiceUser(other); who != "" {
			args = append(args, "--"+other+"-user="+who)
		}
	}
	live := n.handed.Load() != nil
	if live {
		slice, err := n.writeSlice(name, identity)
		if err != nil {
			return nil, err
		}
		args = append(args, slice)
	}
	if name != service.Podsync {
		args = withoutSecrets(args)
	}
	if !needsCopies(identity) {
		return args, nil
	}
	dir := n.copyDir(name)
	if err := ownDir(dir, identity.GID); err != nil {
		return nil, err
	}
	extra := []string{"--bootstrap-kubeconfig="}
	if !live {
		var err error
		if extra, err = writeConfigCopy(dir, n.loaded, identity.GID); err != nil {
			return nil, err
		}
	}
	args = append(args, extra...)
	if name != service.Gateway {
		n.tidy(dir, dropOthers(dir))
		return args, nil
	}
	extra, err := n.credentials.write(ctx)
	if err != nil {
		return nil, err
	}
	n.tidy(dir, n.credentials.dropOthers())
	return append(args, extra...), nil
}

// tidy says that old copies could not be removed.
func (n *nodeRun) tidy(dir string, err error) {
	if err != nil {
		n.log.Error(err, "Copies of an earlier agent stay behind and may have keys in them: remove them", "directory", dir)
	}
}

// withoutSecrets leaves out the flags whose values may be secrets of podsync's: the URL
// from which it gets manifests, and the headers. The other services have no use for
// them, and a process's arguments are for all to read.
func withoutSecrets(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, inline := strings.Cut(args[i], "=")
		flag, long := strings.CutPrefix(strings.ReplaceAll(name, "_", "-"), "--")
		if !long || flag != "manifest-url-header" && flag != "manifest-url" {
			out = append(out, args[i])
		} else if !inline {
			i++ // its value
		}
	}
	return out
}

// copyDir is where a service without root finds what it may read.
func (n *nodeRun) copyDir(service string) string {
	return filepath.Join(n.loaded.Flags.SocketDir, service)
}

// ownDir makes dir 0750 and gives it to a group. A directory that is another's,
// or that others may write to, is refused: it is no place for sockets and keys.
func ownDir(dir string, gid int) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Its mode and group are put right below; what others have put there before
	// would stay.
	if err := uds.OwnDir(dir, gid); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		return err
	}
	if gid < 0 {
		return nil
	}
	if err := os.Chown(dir, -1, gid); err != nil {
		return fmt.Errorf("give %s to group %s: %w", dir, strconv.Itoa(gid), err)
	}
	return nil
}

// ownSocketDir is ownDir for the directory of sockets, which people name. One of
// the machine's (/run, say) is refused: others would be locked out of it.
func ownSocketDir(dir string, gid int) error {
	if err := onlyOurs(dir, gid); err != nil {
		return err
	}
	return ownDir(dir, gid)
}

// onlyOurs fails when a directory would change for others, and has something in it
// that is not polylet's.
func onlyOurs(dir string, gid int) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().Perm() == 0o750 && (gid < 0 || int(owner.Gid) == gid) {
		return nil // nothing changes
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// Sockets, directories of sockets and of copies.
		if name, _, _ := strings.Cut(e.Name(), "."); !slices.Contains(service.ServersFirst(), name) {
			return fmt.Errorf("%s has other things than polylet's in it (%s), and would be closed to all but root and polylet's group: name a directory of polylet's own, %s say",
				dir, e.Name(), filepath.Join(dir, "polylet"))
		}
	}
	return nil
}
