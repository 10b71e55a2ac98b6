// Command csistandin stands in, in the upstream suite's CSI drivers, for programs that no Go
// module has: under the name csi-node-driver-registrar it registers a driver with the
// agent, as livenessprobe it says over HTTP whether a driver answers, and as hostpathplugin
// it hands each connection to the driver's socket on to the suite, where the driver is, or
// becomes the driver that is to run in the pod. It must never answer for a driver.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// mock is the suite's driver in the image, and hostPath that of volumes on the disk, which
// the suite gives the flag lifecycle.
const (
	mock, hostPath = "/csimock", "/csihostpath"
	lifecycle      = "check-volume-lifecycle"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		log.Fatal(err) //nolint:gocritic // Nothing is left to be done.
	}
}

func run(ctx context.Context, name string, args []string) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.String("v", "", "taken and not used")
	switch name {
	case "csi-node-driver-registrar":
		r := registrar{}
		flags.StringVar(&r.address, "csi-address", "/run/csi/socket", "the driver's `socket`")
		flags.StringVar(&r.path, "kubelet-registration-path", "", "where the agent finds that `socket`")
		flags.StringVar(&r.directory, "plugin-registration-path", "/registration", "`directory` of the agent's for sockets of plugins")
		flags.Duration("timeout", 0, "taken and not used")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return r.run(ctx)
	case "hostpathplugin":
		flags.String("nodeid", "", "taken and not used")
		endpoint := flags.String("endpoint", "", "the driver's `socket`")
		suite := flags.String("proxy-endpoint", "", "tcp://:`port` to which the suite connects")
		if !has(args, "proxy-endpoint") {
			driver := mock
			if has(args, lifecycle) {
				driver = hostPath
			}
			return syscall.Exec(driver, append([]string{driver}, args...), os.Environ())
		}
		if err := flags.Parse(args); err != nil {
			return err
		}
		return proxy(ctx, *endpoint, *suite)
	case "livenessprobe":
		address := flags.String("csi-address", "/run/csi/socket", "the driver's `socket`")
		port := flags.Int("health-port", 9808, "where it is asked")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return liveness(ctx, *address, fmt.Sprintf(":%d", *port))
	}
	return fmt.Errorf("%s: this stand-in knows no such program", name)
}

// has says whether a flag has a value among the arguments.
func has(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(strings.TrimLeft(arg, "-"), flag+"=") })
}
