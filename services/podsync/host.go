package podsync

import (
	"context"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/host/firewall"
	"github.com/polylet/polylet/services/podsync/internal/host/plugins"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/report/claimstatus"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/nodecgroups"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
	"github.com/polylet/polylet/services/podsync/internal/runtime/podcidr"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// setUpHost makes what lies on the node: volumes, cgroups, ids, the firewall.
func (w *wiring) setUpHost() {
	cfg, deps := w.cfg, w.deps
	if w.hosts = deps.HostsGuard; w.hosts == nil {
		w.hosts = smallfiles.New(w.podsDir(), smallfiles.Deps{Health: deps.Health})
	}
	w.users = userns.New(userns.Config{RootDir: cfg.RootDir, IDsPerPod: cfg.Pods.UserNamespaceIDs, Host: func() (userns.Range, error) {
		return userns.HostIDs(cfg.Node.MaxPods, max(cfg.Pods.UserNamespaceIDs, userns.DefaultIDs))
	}})
	w.csi = csi.New(csi.Config{RootDir: cfg.RootDir, NodeName: cfg.Node.Name, Epoch: deps.Epoch, NoController: cfg.Pods.NoController, SELinuxMount: cfg.Pods.SELinuxMount}, csi.Deps{
		SELinux: selinux.NewHost(),
		Objects: w.objects, Tokens: w.tokens, Node: w.node, Mounter: deps.Mounter, Pods: w.pods, Metrics: w.metrics,
		Cluster: w.objects, Events: w.events, Dial: deps.DialCSI,
	})
	w.node.Subscribe(w.csi.NodeChanged)
	with := volume.Deps{
		Objects: w.objects, Claims: w.objects, Tokens: w.tokens, Mounter: deps.Mounter, Events: w.events, Metrics: w.metrics,
		Allocatable: w.node.Allocatable, Pods: w.pods, CSI: w.csi,
	}
	if _, real := deps.Mounter.(*mount.Kernel); real { // else nobody is asked
		with.Apart = apart.New(apart.Config{Most: 32, MostOfOne: 8})
	}
	if deps.Client != nil {
		grows := growth.New(growth.Config{}, growth.Deps{Claims: w.objects, Status: claimstatus.New(deps.Client.CoreV1()), Events: w.events})
		with.Growth = grows
		w.add("growth of volumes", grows.Run)
	}
	if cfg.Pods.Certificates {
		w.certificates = podcertificate.New(podcertificate.Deps{Issuer: podcertificate.FromClient(deps.Client), Objects: w.objects, Events: w.events})
		with.Certificates = w.certificates
	}
	w.volumes = volume.New(volume.Config{RootDir: cfg.RootDir, TrustBundles: cfg.Pods.TrustBundles, Health: cfg.Pods.VolumeHealth}, with)
	w.node.SubscribeAllocatable(w.volumes.AllocatableChanged)
	w.podCIDR = podcidr.New(podcidr.Deps{Runtime: w.runtime, Ready: w.runtimeReady, Wanted: w.node.PodCIDR})
	w.node.Subscribe(w.podCIDR.Check)
	w.makeCgroups()
	if deps.Plugins != nil {
		w.add("plugins", func(ctx context.Context) error { return deps.Plugins(ctx, w.csi) })
	} else if cfg.PluginsDir != "" {
		w.add("plugins", plugins.New(plugins.Config{
			Dir: cfg.PluginsDir, Handlers: map[string]plugins.Handler{registration.CSIPlugin: w.csi},
		}, plugins.Deps{Health: deps.Health}).Run)
	}
	w.add("hosts files", w.hosts.Run)
	w.add("volumes", w.volumes.Run)
	w.add("volumes of CSI drivers", w.csi.Run)
	w.add("pod network", w.podCIDR.Run)
	if cfg.Network.IPTablesUtilChains {
		w.add("chains of iptables", firewall.New(firewall.Deps{Health: deps.Health, Event: w.notices.NoChains}).Run)
	}
}

// activeChanged is told when pods ask for something else together; nil where nobody wants
// to know.
func (w *wiring) activeChanged() func() {
	if cfg := w.cfg.Cgroups; w.nodeCgroups == nil || cfg.QOSReserved == nil && !(cfg.MemoryQoS.On && cfg.MemoryQoS.Tiered) {
		return nil
	}
	return w.nodeCgroups.Check
}

// makeCgroups makes what makes the cgroups.
func (w *wiring) makeCgroups() {
	cfg := w.cfg.Cgroups
	if cfg.System != "" {
		w.add("the system's cgroup", cgroup.System{Name: cfg.System, Health: w.deps.Health}.Run)
	}
	if !cfg.PerQOS {
		w.cgroups = cgroup.Off{}
		return
	}
	var enforced []cgroup.Reserved
	for _, r := range cfg.Enforced {
		enforced = append(enforced, cgroup.Reserved(r))
	}
	w.nodeCgroups = nodecgroups.New(nodecgroups.Config{
		Root: cfg.Root, Driver: cgroup.Driver(cfg.Driver), PodPidsLimit: cfg.PodPidsLimit,
		CPUCFSQuota: cfg.CPUCFSQuota, CPUCFSQuotaPeriod: cfg.CPUCFSQuotaPeriod, EnforcePods: cfg.EnforcePods, Enforced: enforced,
		ReservedMilliCPU: cfg.ReservedMilliCPU, ReservedMemoryBytes: cfg.ReservedMemoryBytes, ReservedPIDs: cfg.ReservedPIDs,
		QOSReserved: cfg.QOSReserved, MemoryQoS: resources.MemoryQoS(cfg.MemoryQoS),
	}, nodecgroups.Deps{
		Asked: func() (guaranteed, burstable int64, known bool) {
			pods, known := w.pods.Active()
			guaranteed, burstable = resources.MemoryAsked(pods)
			return guaranteed, burstable, known
		},
		Runtime: w.runtime, Ready: w.runtimeReady, Capacity: w.node.Capacity, Rows: w.table, Events: w.events, Health: w.deps.Health, Metrics: w.metrics,
		Make: w.deps.makeCgroups,
	})
	w.cgroups = w.nodeCgroups
	w.node.Subscribe(w.nodeCgroups.Check)
	w.add("cgroups", w.nodeCgroups.Run)
}
