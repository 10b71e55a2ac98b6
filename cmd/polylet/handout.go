package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
)

// argsFile holds the flags of a service without root, for systemd's EnvironmentFile.
const argsFile = "args.env"

// newHandoutCommand is `polylet handout`: under systemd it does, as root, what
// `polylet run` does itself: it copies what services without root may read.
func newHandoutCommand() *cobra.Command {
	return serviceCommand("handout", "Copy configuration and keys for the services without root (systemd does this)", handOut)
}

// handOut writes <socket-dir>/<service>/ for gateway and probes. It is run
// again when a certificate changes; what is the same is not written again.
func handOut(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	node := &nodeRun{loaded: loaded, log: klog.FromContext(ctx).WithName("handout"), gid: socketGroup(loaded.Flags.SocketGroup)}
	gid, err := uds.LookupGroup(node.gid)
	if err != nil {
		return fmt.Errorf("--socket-group: %w", err)
	}
	if err := ownDir(loaded.Flags.SocketDir, gid); err != nil {
		return fmt.Errorf("--socket-dir: %w", err)
	}
	for _, service := range []string{"probes", "gateway"} {
		identity, err := supervise.LookupIdentity(loaded.ServiceUser(service), gid)
		if err != nil {
			return fmt.Errorf("--%s-user: %w", service, err)
		}
		if !identity.Drop {
			continue
		}
		if service == "gateway" {
			node.credentials = newCredentials(node.log, loaded, node.copyDir(service), identity)
		}
		args, err := node.argsOf(ctx, service, identity)
		if err != nil {
			return err
		}
		line, err := environmentLine(args[1:])
		if err != nil {
			return err
		}
		if err := fsatomic.WriteFile(filepath.Join(node.copyDir(service), argsFile), []byte(line), 0o640); err != nil {
			return err
		}
	}
	return nil
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
