// Command csihostpath stands in, in the upstream suite's images, for the CSI driver
// hostpathplugin, which no module has: a volume is a directory beside the driver's socket,
// or a file there with a loop device, and a snapshot is a copy of one. It holds the agent to
// what the CSI spec wants of one, as the suite's flag -check-volume-lifecycle asks for. It
// must never keep anything outside of its directory but loop devices of volumes that are
// staged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "csihostpath:", err)
		os.Exit(1) //nolint:gocritic // Nothing is left to be done.
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("csihostpath", flag.ContinueOnError)
	d := driver{host: machine{}}
	flags.StringVar(&d.name, "drivername", "hostpath.csi.k8s.io", "the driver's name")
	flags.StringVar(&d.node, "nodeid", "", "its name of the node")
	flags.Int64Var(&d.most, "maxvolumespernode", 0, "how many volumes the node may have")
	flags.BoolVar(&d.modifies, "enable-controller-modify-volume", false, "volumes can be modified")
	mutable := flags.String("accepted-mutable-parameter-names", "", "what of a volume can be modified, with commas")
	endpoint := flags.String("endpoint", "unix:///csi/csi.sock", "its socket")
	flags.String("v", "", "taken and not used")
	flags.Bool("check-volume-lifecycle", true, "taken and not used: it always does")
	if err := flags.Parse(args); err != nil {
		return err
	}
	d.mutable = strings.Split(*mutable, ",")
	socket := strings.TrimPrefix(*endpoint, "unix://")
	for name, of := range map[string]*volumes{"volumes": &d.volumes, "snapshots": &d.snapshots} {
		of.dir = filepath.Join(filepath.Dir(socket), name)
		if err := os.MkdirAll(of.dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, &d)
	csi.RegisterControllerServer(server, &d)
	csi.RegisterGroupControllerServer(server, &d)
	csi.RegisterNodeServer(server, &d)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(listener)
}

// logged logs each call. It says nothing of secrets: the suite has none for this driver.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	klog.FromContext(ctx).Info("Called", "method", info.FullMethod, "request", request, "answer", answer, "err", err)
	return answer, err
}
