package main

import (
	"context"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/probes"
)

// newProbesCommand is `polylet probes`: it shows a person the containers' probes, and
// runs them as a service, see asksAboutProbes. That takes the kubelet's flags, of
// which it needs the sockets and the logging.
func newProbesCommand() *cobra.Command {
	cmd := serviceCommand(service.Probes, "Run liveness, readiness and startup probes", runProbes)
	cmd.Short = "Show each probe and how its last attempt went; polylet serve probes runs them"
	serve := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !asksAboutProbes(args, os.Getenv) {
			return serve(cmd, args)
		}
		list := newProbeStatesCommand()
		list.SetArgs(args)
		list.SetOut(cmd.OutOrStdout())
		list.SetErr(cmd.ErrOrStderr())
		list.SilenceErrors, list.SilenceUsage = true, true
		return list.ExecuteContext(cmd.Context())
	}
	cmd.ValidArgsFunction = completePods
	return cmd
}

// asksAboutProbes says whether `polylet probes` comes from a person who wants
// to see the probes. Who starts the service gives it flags of the kubelet, or is
// systemd, polylet run or polylet serve, which leave their marks in the environment.
func asksAboutProbes(args []string, env func(string) string) bool {
	for len(args) > 0 {
		switch arg := args[0]; {
		case arg == "--socket-dir": // both have it
			args = args[min(2, len(args)):]
		case strings.HasPrefix(arg, "--socket-dir="), arg == "--help", arg == "-h":
			args = args[1:]
		default:
			return arg != "" && (!strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "-o") || strings.HasPrefix(arg, "--output"))
		}
	}
	return env(servesVariable) == "" && env("NOTIFY_SOCKET") == "" && env("LISTEN_FDS") == "" && env("INVOCATION_ID") == ""
}

func runProbes(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	results := prometheus.NewRegistry()
	d, err := daemon.New(withConfiguration(ctx, loaded, daemon.Options{
		Service:         service.Probes,
		NodeName:        loaded.NodeName,
		SocketDir:       loaded.Flags.SocketDir,
		SocketGroup:     loaded.Flags.SocketGroup,
		ExtraRegistries: map[string]prometheus.Gatherer{service.Probes: results},
		Tracing:         traced(loaded),
		Access:          accessTo(service.Probes),
		Users:           serviceUsers(loaded),
		// systemd hides other users' processes from it (ProtectProc).
		HiddenCallers: true,
	}))
	if err != nil {
		return err
	}
	podsync, err := d.Dial(service.Podsync)
	if err != nil {
		return err
	}
	defer podsync.Close()
	p, err := probes.New(probes.Config{}, probes.Deps{
		Metrics: d.Metrics(), ProbeMetrics: results, Health: d.Health(), Epoch: d.Epoch(), Podsync: podsync,
	})
	if err != nil {
		return err
	}
	p.Register(d.Server())
	return d.Run(ctx, p.Run)
}
