package podsync

import (
	"context"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/firewall"
	"github.com/polylet/polylet/services/podsync/internal/host/plugins"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/nodecgroups"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
	"github.com/polylet/polylet/services/podsync/internal/runtime/podcidr"
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
	w.setUpVolumes()
	w.podCIDR = podcidr.New(podcidr.Deps{Runtime: w.runtime, Ready: w.runtimeReady, Wanted: w.node.PodCIDR})
	w.node.Subscribe(w.podCIDR.Check)
	w.makeCgroups()
	if deps.Plugins != nil {
		w.add("plugins", func(ctx context.Context) error { return deps.Plugins(ctx, csiDrivers{w.csi}) })
	} else if cfg.PluginsDir != "" {
		w.add("plugins", plugins.New(plugins.Config{
			Dir: cfg.PluginsDir, Handlers: map[string]plugins.Handler{registration.CSIPlugin: w.csi},
		}, plugins.Deps{Health: deps.Health}).Run)
	}
	w.add("hosts files", w.hosts.Run)
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
