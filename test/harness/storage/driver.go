package storage

import (
	"context"
	"fmt"
	"os"

	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

const (
	// driver is the name of the CSI driver beside the node.
	driver = "external.csi.polylet"
	// Definition is what the suite is told of the driver: a file, relative to the checkout.
	Definition = "test/conformance/external.yaml"
)

// object is the driver as the cluster knows it.
const object = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata:
  name: ` + driver + `
spec:
  attachRequired: false
  podInfoOnMount: true
  fsGroupPolicy: File
  volumeLifecycleModes: [Persistent, Ephemeral]
`

// startDriver runs test/images/csihostpath and its sidecars beside the node, as a driver
// that can what the suite's own csi-hostpath is said not to.
func (s *Storage) startDriver(ctx context.Context) error {
	builder, err := programs.New(s.cfg.Progress)
	if err != nil {
		return err
	}
	plugin, registrar, err := builder.CSIHostPath(ctx)
	if err != nil {
		return err
	}
	sidecars, err := builder.Binaries(ctx, programs.CSISidecars()...)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.cfg.Progress, "starting the CSI driver …")
	if err := s.kubectl(ctx, object, "create", "-f", "-"); err != nil {
		return err
	}
	dir, err := s.cfg.Instance.Mkdir("csi")
	if err != nil {
		return err
	}
	socket := dir + "/csi.sock"
	address := []string{"--csi-address=" + socket, "--kubeconfig=" + s.cfg.Cluster.AdminKubeconfig, "--v=5", "--kube-api-qps=50", "--kube-api-burst=100"}
	for _, cfg := range []process.Config{
		{
			Name: "csihostpath", Path: plugin, Args: []string{"--drivername=" + driver, "--endpoint=unix://" + socket, "--nodeid=" + s.cfg.Node},
			Ready: func(context.Context) error { _, err := os.Stat(socket); return err },
		},
		{
			Name: "csi-node-driver-registrar", Path: registrar,
			Args: []string{"--csi-address=" + socket, "--kubelet-registration-path=" + socket, "--plugin-registration-path=" + s.cfg.RootDir + "/plugins_registry"},
		},
		{
			Name: "csi-provisioner", Path: sidecars["csi-provisioner"], Env: []string{"NAMESPACE=kube-system", "POD_NAME=" + driver},
			Args: append(address, "--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-for-immediate-binding", "--capacity-poll-interval=5s"),
		},
		{Name: "csi-resizer", Path: sidecars["csi-resizer"], Args: address},
		{Name: "csi-snapshotter", Path: sidecars["csi-snapshotter"], Args: append(address, "--feature-gates=CSIVolumeGroupSnapshot=true")},
	} {
		cfg.LogFile = s.cfg.Instance.Path("cluster", cfg.Name+".log")
		if err := s.start(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}
