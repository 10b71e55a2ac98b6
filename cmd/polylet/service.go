package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/process"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

// Commands that take the kubelet's flags as a service does, and are none.
const (
	runName     = "run"
	handoutName = "handout"
)

// servesAnnotation is what a command does as a service.
const servesAnnotation = "serves"

// serviceCommand is the command of one of the five processes. Its arguments are
// the kubelet's flags, which kubeletconfig parses; run gets what they mean and
// the context that ends with the first signal. newXCommand in X.go calls it.
func serviceCommand(name, short string, run func(context.Context, *kubeletconfig.Loaded) error) *cobra.Command {
	return serviceCommandOf(name, short, kubeletconfig.Load, run)
}

// serviceCommandOf is serviceCommand with another way to load the configuration.
func serviceCommandOf(name, short string, load func(args []string) (*kubeletconfig.Loaded, error), run func(context.Context, *kubeletconfig.Loaded) error) *cobra.Command {
	return &cobra.Command{
		Use:                name + " [kubelet flags]",
		Short:              short,
		Annotations:        map[string]string{servesAnnotation: short},
		DisableFlagParsing: true,
		SilenceUsage:       true,
		SilenceErrors:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := load(args)
			switch {
			case errors.Is(err, kubeletconfig.ErrHelp):
				fmt.Fprintf(cmd.OutOrStdout(), "%s.\n\nFlags:\n", short)
				kubeletconfig.Usage(cmd.OutOrStdout())
				return nil
			case errors.Is(err, kubeletconfig.ErrVersion):
				fmt.Fprintln(cmd.OutOrStdout(), kubeletconfig.VersionText())
				return nil
			case err != nil:
				return endLater(cmd.Context(), err)
			}
			logging := loaded.Config.Logging
			if err := daemon.InitLogging(daemon.Logging{
				Format: logging.Format, Verbosity: int32(logging.Verbosity), VModule: logsapi.VModuleConfigurationPflag(&logging.VModule).String(),
			}); err != nil {
				return err
			}
			if loaded.Config.EnableContentionProfiling {
				runtime.SetBlockProfileRate(1)
			}
			if name != handoutName { // which is over in a moment
				process.Apply(process.Config{
					OOMScoreAdj: int(*loaded.Config.OOMScoreAdj), MaxOpenFiles: uint64(loaded.Config.MaxOpenFiles), //nolint:gosec // Validated.
				}, klog.Background())
				enterCgroup(loaded.Config.KubeletCgroups)
			}
			ctx := withInPlace(cmd.Context(), name, loaded)
			if !loaded.Flags.FollowSlice {
				return run(ctx, loaded)
			}
			return runSlice(ctx, name, loaded, run)
		},
	}
}

// enterCgroup moves a process of root into the agent's cgroup; the others were
// started in there.
func enterCgroup(name string) {
	if os.Geteuid() != 0 {
		return
	}
	if err := podsyncservice.EnterCgroup(name); err != nil {
		klog.Background().Error(err, "This process stays out of the cgroup that kubeletCgroups names")
	}
}
