package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
	podsyncservice "github.com/polylet/polylet/services/podsync"
	"github.com/polylet/polylet/services/stats"
)

// newStatsCommand is `polylet stats`: it measures the node. It takes the
// kubelet's flags, of which it needs those about cgroups and directories.
func newStatsCommand() *cobra.Command {
	return serviceCommand(service.Stats, "Measure the machine, its pods and their containers", runStats)
}

func runStats(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	d, err := daemon.New(withConfiguration(ctx, loaded, daemon.Options{
		Service:     service.Stats,
		NodeName:    loaded.NodeName,
		SocketDir:   loaded.Flags.SocketDir,
		SocketGroup: loaded.Flags.SocketGroup,
		Tracing:     traced(loaded),
		Access:      accessTo(service.Stats),
		Users:       serviceUsers(loaded),
		// Its user sees no others' processes where /proc is mounted with hidepid.
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
	config := loaded.Config
	s, err := stats.New(stats.Config{
		NodeName:       loaded.NodeName,
		RootDir:        loaded.Flags.RootDir,
		CgroupRoot:     config.CgroupRoot,
		SystemdCgroups: config.CgroupDriver == "systemd",
		KubeletCgroup:  podsyncservice.AgentCgroup(config.KubeletCgroups),
		RuntimeCgroup:  loaded.Flags.RuntimeCgroups,
		SystemCgroup:   config.SystemCgroups,
		VolumePeriod:   config.VolumeStatsAggPeriod.Duration,
		MemoryNotices:  config.KernelMemcgNotification,
		AskDrivers:     asksDrivers(loaded),
	}, stats.Deps{Podsync: podsync, Metrics: d.Metrics(), Health: d.Health(), Note: d.Health().Note, Epoch: d.Epoch()})
	if err != nil {
		return err
	}
	s.Register(d.Server())
	return d.Run(ctx, s.Run)
}

// asksDrivers says whether drivers are asked how well their volumes are though nobody
// wants to know; as with a kubelet, a period of 0 or less has nobody asked.
func asksDrivers(loaded *kubeletconfig.Loaded) bool {
	return loaded.FeatureEnabled("CSIVolumeHealth") && loaded.Config.VolumeStatsAggPeriod.Duration > 0
}
