package podsync

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/podsync/internal/cluster/nodeinfo"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/desired/mirror"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/stopping"
	"github.com/polylet/polylet/services/podsync/internal/report/conditions"
	"github.com/polylet/polylet/services/podsync/internal/report/notice"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
)

// followCluster makes what is read of the cluster beside pods.
func (w *wiring) followCluster() {
	cfg := w.cfg
	w.objects = objects.New(objects.Config{NodeName: cfg.Node.Name, TrustBundles: cfg.Pods.TrustBundles, Certificates: cfg.Pods.Certificates}, objects.Deps{Client: w.deps.Client})
	w.objects.Subscribe(w.objectChanged)
	w.node = nodeinfo.New(nodeinfo.Config{
		Name: cfg.Node.Name, IP: cfg.Node.IP, ExternalCloud: cfg.Node.ExternalCloud, PodCIDR: cfg.Node.PodCIDR, MaxPods: cfg.Node.MaxPods,
		ReservedMilliCPU: cfg.Cgroups.ReservedMilliCPU, ReservedMemoryBytes: cfg.Cgroups.ReservedMemoryBytes,
		BootID: kernel.BootID(),
	}, nodeinfo.Deps{Client: w.deps.Client, Objects: w.objects, Pods: w.pods, Health: w.deps.Health, HostIPs: w.deps.HostIPs})
	var requester serviceaccount.Requester
	if w.deps.Client != nil {
		requester = serviceaccount.FromClient(w.deps.Client)
	}
	w.tokens = serviceaccount.New(serviceaccount.Config{}, serviceaccount.Deps{Requester: requester})
	w.add("objects", w.objects.Run)
	w.add("node", w.node.FollowObject)
	w.add("node object", w.node.ReadAnew)
	w.add("node addresses", w.node.FollowAddresses)
}

// want makes what says which pods are wanted.
func (w *wiring) want() (err error) {
	from := w.cfg.StaticPods
	w.sources, err = source.New(source.Config{
		NodeName: w.cfg.Node.Name, StaticPodPath: from.Path, FileCheckFrequency: from.CheckFrequency,
		StaticPodURL: from.URL, StaticPodURLHeader: from.URLHeader, HTTPCheckFrequency: from.URLCheckFrequency,
		AllowAPIReferences: from.APIReferences,
	}, source.Deps{
		Client: w.deps.Client, Mirrors: w.mirrors, Events: w.events, Health: w.deps.Health, Notifier: w.deps.Notifier, Restored: w.restored,
		Listed: w.statuses.Listed,
	})
	w.add("sources", func(ctx context.Context) error { return w.sources.Run(ctx, w.pods) })
	return err
}

// report makes what tells the apiserver and people of the pods.
func (w *wiring) report() {
	deps := w.deps
	w.mirrors = mirror.New(mirror.Config{NodeName: w.cfg.Node.Name}, mirror.Deps{
		Client: deps.Client, Node: w.objects.Node, Health: deps.Health,
		OnChange: func(static types.UID) { w.statuses.Touch(static) },
	})
	w.node.Subscribe(w.mirrors.NodeChanged)
	w.notices = notice.Notices{Events: w.events, Lines: w.lines, Mirrors: w.mirrors, Health: deps.Health}
	w.statuses = status.New(status.Config{}, status.Deps{
		Client: deps.Client, Mirrors: w.mirrors, Health: deps.Health, OnRefused: w.notices.Refused, OnWithheld: w.notices.Withheld,
		Sending: w.idle.Begin, Trace: w.lines.TraceStatus, Metrics: w.metrics,
	})
	w.ends = stopping.New(stopping.Deps{File: w.cfg.stateFile("stops.json"), Health: deps.Health})
	w.conditions = conditions.New(conditions.Deps{File: w.cfg.stateFile("conditions.json"), Health: deps.Health})
	w.probes = probestore.NewBoard(probestore.Deps{
		Epoch: deps.Epoch, Events: notice.Probes{Notices: w.notices}, Results: w.pods, Health: deps.Health, Memory: w.cfg.stateFile("probe-results.json"),
	})
	w.loads = append(w.loads, w.probes.Load, w.ends.Load, w.conditions.Load)
	w.add(service.Probes, w.probes.Run)
	w.add("conditions", w.conditions.Run)
	w.add("ends of pods", w.ends.Run)
	w.add("events", w.events.Run)
	w.add("mirrors", w.mirrors.Run)
	w.add("statuses", w.statuses.Run)
}
