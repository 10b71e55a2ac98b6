// Command csimock serves the upstream suite's mock CSI driver on a socket, as the image
// hostpathplugin does in some of its tests, and logs each call as the suite reads it. It
// must never mount anything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "csimock:", err)
		os.Exit(1)
	}
}

func run() error {
	klog.InitFlags(nil) // -v
	cfg := service.Config{IO: service.OSDirIO{}}
	flag.StringVar(&cfg.DriverName, "drivername", "mock.storage.k8s.io", "the driver's name")
	endpoint := flag.String("endpoint", "/csi/csi.sock", "its socket")
	attach := flag.Bool("enable-attach", false, "its volumes are attached")
	flag.BoolVar(&cfg.EnableTopology, "enable-topology", false, "it has a topology")
	flag.Int64Var(&cfg.AttachLimit, "attach-limit", 0, "how many volumes the node may have")
	flag.BoolVar(&cfg.NodeExpansionRequired, "node-expand-required", false, "volumes are expanded on the node, too")
	flag.String("nodeid", "", "taken and not used")
	flag.String("statedir", "", "taken and not used")
	flag.Parse()
	cfg.DisableAttach = !*attach
	if err := os.Remove(*endpoint); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", *endpoint)
	if err != nil {
		return err
	}
	mock := service.New(cfg)
	served := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: mock, Identity: mock, Node: unattached{mock}})
	if err := served.Start(listener, nil); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	<-ended
	served.Stop()
	return nil
}

// unattached takes volumes without the device of an attachment, too: no agent has one once
// the CSIDriver says that they need not be attached, and the suite wants their pods to run.
type unattached struct{ csi.NodeServer }

// device is where the mock looks for that of an attachment.
const device = "device"

func (u unattached) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	r.PublishContext = with(r.GetPublishContext())
	return u.NodeServer.NodeStageVolume(ctx, r)
}

func (u unattached) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	r.PublishContext = with(r.GetPublishContext())
	return u.NodeServer.NodePublishVolume(ctx, r)
}

// with is the context with a device, which nobody opens.
func with(published map[string]string) map[string]string {
	if published[device] != "" {
		return published
	}
	all := maps.Clone(published)
	if all == nil {
		all = map[string]string{}
	}
	all[device] = "none"
	return all
}
