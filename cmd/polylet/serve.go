package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

// servesVariable is set for a process that `polylet serve` has begun, to the name of
// the service: `polylet probes` is a person's question too.
const servesVariable = "POLYLET_SERVES"

// newServeCommand is `polylet serve SERVICE`. The process becomes `polylet SERVICE`:
// processes of a node are found by that, whoever started them.
func newServeCommand(execute func(program string, argv, env []string) error) *cobra.Command {
	serve := &cobra.Command{
		Use: "serve SERVICE [kubelet flags]", DisableFlagsInUseLine: true,
		Short: "Run one of the five services: podsync, probes, stats, nodestatus or gateway",
		Long: `Run one of the five services. Each takes the kubelet's flags; "polylet serve SERVICE --help" prints them.

The process shows itself as "polylet SERVICE", and may be started as that as well. Only "polylet probes"
alone is the question how the probes went, unless it has the kubelet's flags, or systemd or polylet run starts it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, service := range serviceCommands() {
		name := service.Name()
		serve.AddCommand(&cobra.Command{
			Use:                name + " [kubelet flags]",
			Short:              service.Annotations[servesAnnotation],
			DisableFlagParsing: true,
			RunE:               func(_ *cobra.Command, args []string) error { return become(execute, name, args) },
		})
	}
	return serve
}

// become makes this process that of a service.
func become(execute func(program string, argv, env []string) error, service string, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("serve %s: find this program: %w", service, err)
	}
	argv := slices.Concat([]string{os.Args[0], service}, args)
	env := append(os.Environ(), servesVariable+"="+service)
	err = execute(program, argv, env)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOENT) {
		// It may lie where this user cannot look, or have been replaced.
		err = execute("/proc/self/exe", argv, env)
	}
	return fmt.Errorf("serve %s: execute %s: %w", service, program, err)
}
