package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
)

// argsFile holds the flags of a service without root, for systemd's EnvironmentFile.
const argsFile = "args.env"

// followFlag is handout's own, beside the kubelet's.
const followFlag = "--follow"

// newHandoutCommand is `polylet handout`: under systemd it does, as root, what
// `polylet run` does itself: it copies what services without root may read.
func newHandoutCommand() *cobra.Command {
	follow := false
	cmd := serviceCommandOf(handoutName, "Copy configuration and keys for the services without root; with "+followFlag+
		", again whenever an original changes (systemd does this)", loadOrLast, func(ctx context.Context, loaded *kubeletconfig.Loaded) error {
		// The copies say all that is in effect as if it had been asked for.
		if err := loaded.RefuseOpen(); err != nil {
			return err
		}
		if loaded.Flags.DynamicConfigDir != "" && !loaded.Flags.LiveConfig {
			return errClusterUnowned
		}
		if follow && loaded.Flags.LiveConfig {
			return handOutLive(ctx, loaded)
		}
		if loaded.Handed() {
			return errOnlyFollowed
		}
		return handOut(ctx, loaded, follow)
	})
	load := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		follow = slices.Contains(args, followFlag)
		return load(cmd, slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == followFlag }))
	}
	return cmd
}

// handOut writes <socket-dir>/<service>/ for gateway and probes, and, when it
// follows, again whenever an original changes, until ctx is done. What changes
// while it copies is copied next; what is the same is not written again.
func handOut(ctx context.Context, loaded *kubeletconfig.Loaded, follow bool) error {
	log := klog.FromContext(ctx).WithName(handoutName)
	for {
		node, err := handOutOnce(ctx, loaded, log)
		if err != nil || !follow {
			return err
		}
		if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
			log.Error(err, "Could not tell systemd that the copies are there")
		}
		following, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		if node.credentials != nil {
			group.Go(func() { node.credentials.follow(following) })
		}
		group.Go(func() { node.roots.follow(following) })
		group.Go(func() { node.shutdown.follow(following) })
		next, err := nextConfiguration(ctx, loaded, log)
		stop()
		group.Wait()
		if err != nil || ctx.Err() != nil {
			return err
		}
		log.Info("The configuration has changed; its copies follow")
		loaded = next
	}
}

// handOutOnce writes all copies.
func handOutOnce(ctx context.Context, loaded *kubeletconfig.Loaded, log klog.Logger) (*nodeRun, error) {
	node, gid, err := newHandout(loaded, log)
	if err != nil {
		return nil, err
	}
	for _, name := range ownFlags() {
		if err := os.RemoveAll(filepath.Join(node.copyDir(name), argsFile)); err != nil {
			return nil, err // it would name what nobody keeps any more
		}
	}
	if err := node.prepareFor(gid); err != nil {
		return nil, err
	}
	for _, name := range []string{service.Probes, service.Gateway} {
		if err := node.handOutTo(ctx, name, gid); err != nil {
			return nil, err
		}
	}
	return node, nil
}

// newHandout prepares the directory of copies, for the group of this number.
func newHandout(loaded *kubeletconfig.Loaded, log klog.Logger) (node *nodeRun, gid int, err error) {
	node = &nodeRun{loaded: loaded, log: log, gid: socketGroup(loaded.Flags.SocketGroup)}
	if gid, err = uds.LookupGroup(node.gid); err != nil {
		return nil, 0, fmt.Errorf("--socket-group: %w", err)
	}
	if err := ownSocketDir(loaded.Flags.SocketDir, gid); err != nil {
		return nil, 0, fmt.Errorf("--socket-dir: %w", err)
	}
	return node, gid, nil
}

// prepareFor makes what nodestatus writes to; without a user of its own it is root.
func (n *nodeRun) prepareFor(gid int) error {
	var nodestatus supervise.Identity
	if n.loaded.ServiceUser(service.Nodestatus) != "" {
		var err error
		if nodestatus, err = identityOf(n.loaded, service.Nodestatus, gid); err != nil {
			return err
		}
	}
	n.roots = newRootsPart(n.current, nodestatus, n.log)
	n.roots.prepare()
	n.shutdown = newShutdownPart(n.current(), n.gid, nodestatus, n.log)
	return nil
}

func (n *nodeRun) handOutTo(ctx context.Context, name string, gid int) error {
	if n.loaded.ServiceUser(name) == "" {
		return noUser(name)
	}
	// Those without a user here get nothing from here, and read none of this.
	identities, err := identitiesOf(n.loaded, gid, func(name string) bool { return n.loaded.ServiceUser(name) != "" })
	identity := identities[name]
	if err != nil || !identity.Drop {
		return err
	}
	if name == service.Gateway {
		n.credentials = newCredentials(n.log, n.loaded, n.copyDir(name), identity)
	}
	return n.writeArgs(ctx, name, identity)
}

// writeArgs writes the flags with which a service without root is started.
func (n *nodeRun) writeArgs(ctx context.Context, service string, identity supervise.Identity) error {
	args, err := n.argsOf(ctx, service, identity)
	if err != nil {
		return err
	}
	if n.handed.Load() != nil {
		args = append(args, followSliceFlag)
	}
	line, err := environmentLine(args[1:])
	if err != nil {
		return err
	}
	return fsatomic.WriteFile(filepath.Join(n.copyDir(service), argsFile), []byte(line), 0o640)
}

// nextConfiguration waits until the configuration in effect is another than
// loaded's. One that is not valid is logged and waited over.
func nextConfiguration(ctx context.Context, loaded *kubeletconfig.Loaded, log klog.Logger) (*kubeletconfig.Loaded, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	said := "" // of what is wrong
	var found *kubeletconfig.Loaded
	followFiles(ctx, log, func(dirs *directories) { wantConfiguration(dirs, &loaded.Flags) }, func() {
		next, err := kubeletconfig.LoadAgain(loaded.Args)
		switch {
		case err != nil && err.Error() == said:
		case err != nil:
			said = err.Error()
			log.Error(err, "The changed configuration is not valid; the copies stay as they were")
		case !bytes.Equal(next.CopyJSON(), loaded.CopyJSON()):
			found = next
			stop()
		}
	})
	return found, nil
}

// environmentLine is what systemd splits into the same arguments again.
func environmentLine(args []string) (string, error) {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if strings.ContainsAny(arg, "\n'\"\\$") {
			return "", fmt.Errorf("the flag %q has a quote, a dollar sign, a backslash or a line break, which cannot be passed through systemd: put it into the configuration file", arg)
		}
		quoted[i] = arg
		if strings.ContainsAny(arg, " \t") {
			quoted[i] = `"` + arg + `"`
		}
	}
	return "POLYLET_ARGS='" + strings.Join(quoted, " ") + "'\n", nil
}
