package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/host/plugins"
	"github.com/polylet/polylet/services/podsync/internal/report/claimstatus"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/projectquota"
	"github.com/polylet/polylet/services/podsync/internal/storage/scsi"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// setUpVolumes makes what makes volumes.
func (w *wiring) setUpVolumes() {
	cfg, deps := w.cfg, w.deps
	w.stale = volume.NewStale(w.events)
	policy := selinux.NewHost()
	withCSI := csi.Deps{
		Stale:   w.stale,
		SELinux: policy,
		Objects: w.objects, Tokens: w.tokens, Node: w.node, Mounter: deps.Mounter, Pods: driversPods{w}, Metrics: w.metrics,
		Cluster: w.objects, Events: w.events,
	}
	if deps.DialCSI != nil {
		withCSI.Dial = func(socket string) (peer.Conn, error) { return deps.DialCSI(socket) }
	}
	with := volume.Deps{
		Stale:   w.stale,
		Objects: w.objects, Claims: w.objects, Tokens: w.tokens, Mounter: deps.Mounter, Events: w.events, Metrics: w.metrics,
		Allocatable: w.node.Allocatable, Pods: w.pods, Spec: w.spec,
	}
	withDisks := scsi.Deps{Objects: w.objects, InUse: disksInUse{w}, Mounter: deps.Mounter, Events: w.events, Metrics: w.metrics, SELinux: policy}
	if _, real := deps.Mounter.(*mount.Kernel); real { // else nobody is asked
		// What gives files away may take hours, and is no reason for others to wait.
		withCSI.Apart = apart.New(apart.Config{Most: 32, MostOfOne: 2})
		with.Apart = apart.New(apart.Config{Most: 32, MostOfOne: 8})
		with.Projects = projectquota.New()
		withDisks.Apart = apart.New(apart.Config{Most: 32, MostOfOne: 4})
	}
	disks := scsi.New(scsi.Config{RootDir: cfg.RootDir, SELinuxMount: cfg.Pods.SELinuxMount}, withDisks)
	with.Disks, withCSI.Disks = disks, disks
	w.csi = csi.New(csi.Config{
		RootDir: cfg.RootDir, NodeName: cfg.Node.Name, Epoch: deps.Epoch, NoController: !cfg.Pods.ControllerAttaches, SELinuxMount: cfg.Pods.SELinuxMount,
		Standalone: deps.Client == nil,
	}, withCSI)
	with.CSI = w.csi
	w.node.Subscribe(w.csi.NodeChanged)
	if deps.Client != nil {
		grows := growth.New(growth.Config{}, growth.Deps{Claims: w.objects, Status: claimstatus.New(deps.Client.CoreV1()), Events: w.events})
		with.Growth = grows
		w.add("growth of volumes", grows.Run)
	}
	if cfg.Pods.Certificates {
		w.certificates = podcertificate.New(podcertificate.Deps{Issuer: podcertificate.FromClient(deps.Client), Objects: w.objects, Events: w.events})
		with.Certificates = w.certificates
	}
	w.volumes = volume.New(volume.Config{RootDir: cfg.RootDir, TrustBundles: cfg.Pods.TrustBundles, Health: cfg.Pods.VolumeHealth, ProjectQuotas: cfg.Pods.ProjectQuotas}, with)
	w.node.SubscribeAllocatable(w.volumes.AllocatableChanged)
	w.add("volumes", w.volumes.Run)
	w.add("volumes of CSI drivers", w.csi.Run)
}

// driversPods are told that what their CSI drivers failed at may work now: a pod that ends while
// another of its drivers hangs does not hear of it before that.
type driversPods struct{ w *wiring }

// ObjectsChanged implements csi.Pods.
func (d driversPods) ObjectsChanged(uids []types.UID) {
	d.w.volumes.MayWork(uids)
	d.w.pods.ObjectsChanged(uids)
}

// disksInUse has the cluster know of disks as of the volumes of CSI drivers.
type disksInUse struct{ w *wiring }

// Hold implements scsi.InUse.
func (d disksInUse) Hold(ctx context.Context, pod *v1.Pod, name v1.UniqueVolumeName, own, stands bool) error {
	return d.w.csi.Hold(ctx, pod, name, own, stands)
}

// SettleSoon implements scsi.InUse.
func (d disksInUse) SettleSoon(name v1.UniqueVolumeName) { d.w.csi.SettleSoon(name) }

// csiDrivers takes CSI drivers that somebody else than host/plugins has found.
type csiDrivers struct{ csi *csi.Volumes }

// Register implements PluginHandler.
func (d csiDrivers) Register(ctx context.Context, p Plugin) error {
	return d.csi.Register(ctx, plugins.Plugin(p))
}

// Deregister implements PluginHandler.
func (d csiDrivers) Deregister(p Plugin) { d.csi.Deregister(plugins.Plugin(p)) }
