package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/rpc"
)

// serviceCommand is the command of one of the five processes. Its arguments are
// the kubelet's flags, which kubeletconfig parses; run gets what they mean and
// the context that ends with the first signal. newXCommand in X.go calls it.
func serviceCommand(name, short string, run func(context.Context, *kubeletconfig.Loaded) error) *cobra.Command {
	return &cobra.Command{
		Use:                name + " [kubelet flags]",
		Short:              short,
		DisableFlagParsing: true,
		SilenceUsage:       true,
		SilenceErrors:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := kubeletconfig.Load(args)
			switch {
			case errors.Is(err, kubeletconfig.ErrHelp):
				fmt.Fprintf(cmd.OutOrStdout(), "%s.\n\nFlags:\n", short)
				kubeletconfig.Usage(cmd.OutOrStdout())
				return nil
			case errors.Is(err, kubeletconfig.ErrVersion):
				fmt.Fprintln(cmd.OutOrStdout(), kubeletconfig.VersionText())
				return nil
			case err != nil:
				return err
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
			return run(cmd.Context(), loaded)
		},
	}
}

// operators may change every process's log level and take its profiles: the
// gateway, through which people do. Where its user does not exist only root may.
func operators(loaded *kubeletconfig.Loaded) daemon.Access {
	access, _ := rpc.AllowUsers(loaded.ServiceUser("gateway"))
	return access
}
