package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	polyletdaemon "github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
)

// launchCommand is the hidden command through which children start.
const launchCommand = "launch-child"

// takeOver bounds the wait for the sockets of a supervisor that was killed.
const takeOver = 5 * time.Second

func newRunCommand() *cobra.Command {
	return serviceCommand("run", "Run all services as child processes (without systemd)", runNode)
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
	log := klog.FromContext(ctx).WithName("run")
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the executable to start the services with: %w", err)
	}
	node := &nodeRun{loaded: loaded, log: log, gid: socketGroup(loaded.Flags.SocketGroup)}
	if node.services, err = chosen(loaded.Flags.Services); err != nil {
		return err
	}
	if err := node.prepare(); err != nil {
		return err
	}
	defer node.close()
	children, err := node.children(ctx)
	if err != nil {
		return err
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Error(err, "Could not tell systemd that the node is starting")
	}
	go polyletdaemon.LeanMemory(ctx, polyletdaemon.LeanGCPercent)
	go node.credentials.follow(ctx)
	supervisor := supervise.New(supervise.Config{
		Program: program, LaunchCommand: launchCommand, Output: os.Stderr, Log: log,
	}, children)
	return supervisor.Run(ctx)
}

// stopOrder lists the services; they stop from its end to its beginning.
func stopOrder() []string { return []string{"podsync", "stats", "nodestatus", "probes", "gateway"} }

// chosen are the services to supervise, in the order of stopOrder.
func chosen(wanted []string) ([]string, error) {
	var out []string
	for _, service := range stopOrder() {
		if len(wanted) == 0 || slices.Contains(wanted, service) {
			out = append(out, service)
		}
	}
	for _, service := range wanted {
		if !slices.Contains(out, service) {
			return nil, fmt.Errorf("--services: there is no %q; there are %v", service, stopOrder())
		}
	}
	return out, nil
}

// socketGroup is the group of the sockets: the one that was given, polylet if
// it exists, else the group of the same number as the fallback user, so that
// the unprivileged services can connect.
func socketGroup(given string) string {
	if given != "" {
		return given
	}
	if _, err := user.LookupGroup(uds.DefaultGroup); err == nil {
		return uds.DefaultGroup
	}
	if os.Geteuid() != 0 {
		return ""
	}
	return kubeletconfig.FallbackUID
}

// nodeRun is one `polylet run`.
type nodeRun struct {
	loaded      *kubeletconfig.Loaded
	log         klog.Logger
	gid         string
	services    []string
	sockets     map[string]supervise.Socket
	listeners   []net.Listener
	copies      []string
	credentials *credentials
}

// prepare makes the socket directory and opens the sockets.
func (n *nodeRun) prepare() error {
	dir := n.loaded.Flags.SocketDir
	gid, err := uds.LookupGroup(n.gid)
	if err != nil {
		return fmt.Errorf("--socket-group: %w", err)
	}
	if err := ownDir(dir, gid); err != nil {
		return fmt.Errorf("--socket-dir: %w", err)
	}
	n.sockets = map[string]supervise.Socket{}
	for _, service := range n.services {
		if err := n.open(service); err != nil {
			return err
		}
	}
	return nil
}

// open listens for a service. A supervisor that was killed leaves children
// that die with it, but not at the same instant.
func (n *nodeRun) open(service string) error {
	path := filepath.Join(n.loaded.Flags.SocketDir, service+".sock")
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 500 * time.Millisecond})
	deadline := time.Now().Add(takeOver)
	for {
		l, err := uds.Listen(path, n.gid)
		if err == nil {
			n.listeners = append(n.listeners, l)
			file, err := l.(*net.UnixListener).File()
			if err != nil {
				return fmt.Errorf("pass socket %s on: %w", path, err)
			}
			n.sockets[service] = supervise.Socket{Name: service, File: file}
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(retry.Next())
	}
}

// close removes the sockets and the copies of keys and configuration.
func (n *nodeRun) close() {
	for _, dir := range n.copies {
		if err := os.RemoveAll(dir); err != nil {
			n.log.Error(err, "Copies of configuration and keys stay behind", "directory", dir)
		}
	}
	for _, s := range n.sockets {
		_ = s.File.Close()
	}
	for _, l := range n.listeners {
		_ = l.Close() // removes the socket
	}
}

// children describes the services that were chosen.
func (n *nodeRun) children(ctx context.Context) ([]supervise.Child, error) {
	gid, err := uds.LookupGroup(n.gid)
	if err != nil {
		return nil, err
	}
	gateway := n.loaded.ServiceUser("gateway")
	who, err := supervise.LookupIdentity(gateway, gid)
	if err != nil {
		return nil, fmt.Errorf("--gateway-user: %w", err)
	}
	n.credentials = newCredentials(n.log, n.loaded, n.copyDir("gateway"), who)
	var children []supervise.Child
	for _, service := range n.services {
		identity, err := supervise.LookupIdentity(n.loaded.ServiceUser(service), gid)
		if err != nil {
			return nil, fmt.Errorf("--%s-user: %w", service, err)
		}
		if identity.Drop {
			n.copies = append(n.copies, n.copyDir(service))
		}
		children = append(children, supervise.Child{
			Name: service, Identity: identity, Sockets: []supervise.Socket{n.sockets[service]},
			PlainLog: n.loaded.Config.Logging.Format == "json",
			Args:     func() ([]string, error) { return n.argsOf(ctx, service, identity) },
		})
	}
	return children, nil
}

// argsOf are a service's command and flags. Every service gets the node's own
// flags and the users that were found; one without root gets copies of the
// files that it may read.
func (n *nodeRun) argsOf(ctx context.Context, service string, identity supervise.Identity) ([]string, error) {
	args := append([]string{service}, n.loaded.Args...)
	args = append(args, "--socket-group="+n.gid, "--hostname-override="+n.loaded.NodeName)
	for _, name := range []string{"gateway", "probes", "stats"} {
		args = append(args, "--"+name+"-user="+n.loaded.ServiceUser(name))
	}
	if !identity.Drop {
		return args, nil
	}
	dir := n.copyDir(service)
	if err := ownDir(dir, identity.GID); err != nil {
		return nil, err
	}
	extra, err := writeConfigCopy(dir, n.loaded, identity.GID)
	if err != nil {
		return nil, err
	}
	args = append(args, extra...)
	if service != "gateway" {
		return args, nil
	}
	extra, err = n.credentials.write(ctx)
	return append(args, extra...), err
}

// copyDir is where a service without root finds what it may read.
func (n *nodeRun) copyDir(service string) string {
	return filepath.Join(n.loaded.Flags.SocketDir, service)
}

// ownDir makes dir 0750 and gives it to a group. A directory that others may
// write to is refused: it is no place for sockets and keys.
func ownDir(dir string, gid int) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("%s may be written to by everybody: choose a directory of polylet's own", dir)
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
