// Command polylet is the node agent: the five services, each a process of its
// own, the supervisor for a node without systemd, and the commands that look
// into a running node over the same sockets. It owns the command line, what a service is
// wired with and started as, and the part of a node that is root's while the services run:
// sockets, users, copies of files, the configuration. It must never do a service's work, or
// reach into one but by its New and its socket.
package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/service"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

func main() {
	if code, is := podsyncservice.Apart(os.Args[1:], os.Stdout); is {
		os.Exit(code)
	}
	os.Exit(daemon.Main(func(ctx context.Context) error {
		root := newRootCommand()
		root.SetArgs(arguments(os.Args))
		return root.ExecuteContext(ctx)
	}))
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "polylet",
		Short:         "A Kubernetes node agent in five small processes",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	const services, node = "services", "node"
	root.AddGroup(
		&cobra.Group{ID: services, Title: "A service (each takes the kubelet's flags):"},
		&cobra.Group{ID: node, Title: "A node, and what it does:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(services, newServeCommand(syscall.Exec))
	// Whoever starts the services by their names alone goes on doing so.
	for _, c := range serviceCommands() {
		c.Hidden = c.Name() != service.Probes // which is a question, too
		add(node, c)
	}
	add(node, newRunCommand(), newStatusCommand(), newPodsCommand(), newExplainCommand(), newVolumesCommand(), newTopCommand(),
		newLogsCommand(), newExecCommand(), newConfigCommand(), newManifestCommand(), newHandoutCommand(), newVersionCommand())
	root.AddCommand(newLaunchCommand())
	return root
}

// serviceCommands are the services that this build has.
func serviceCommands() []*cobra.Command {
	return []*cobra.Command{
		newPodsyncCommand(),
		newProbesCommand(),
		newStatsCommand(),
		newNodestatusCommand(),
		newGatewayCommand(),
	}
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the build",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildinfo.Get())
			return err
		},
	}
}
