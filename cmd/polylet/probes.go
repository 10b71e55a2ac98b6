package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/services/probes"
)

// newProbesCommand is `polylet probes`: it runs the containers' probes. It
// takes the kubelet's flags, of which it needs the sockets and the logging.
func newProbesCommand() *cobra.Command {
	return serviceCommand("probes", "Run liveness, readiness and startup probes", runProbes)
}

func runProbes(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	results := prometheus.NewRegistry()
	d, err := daemon.New(daemon.Options{
		Service:         "probes",
		NodeName:        loaded.NodeName,
		SocketDir:       loaded.Flags.SocketDir,
		SocketGroup:     loaded.Flags.SocketGroup,
		ExtraRegistries: map[string]prometheus.Gatherer{"probes": results},
		ConfigJSON:      loaded.ConfigzJSON,
		Operators:       operators(loaded),
	})
	if err != nil {
		return err
	}
	podsync, err := d.Dial("podsync")
	if err != nil {
		return err
	}
	defer podsync.Close()
	service, err := probes.New(probes.Config{}, probes.Deps{
		Metrics: d.Metrics(), ProbeMetrics: results, Health: d.Health(), Epoch: d.Epoch(), Podsync: podsync,
	})
	if err != nil {
		return err
	}
	service.Register(d.Server())
	return d.Run(ctx, service.Run)
}
