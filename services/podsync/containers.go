package podsync

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/logrotate"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/execute"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/credentialprovider"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// executor makes what carries actions out.
func (w *wiring) executor() (*execute.Executor, error) {
	puller, err := w.puller()
	if err != nil {
		return nil, err
	}
	return execute.New(execute.Config{PodLogsDir: w.cfg.Logs.Dir, ContainerLogsDir: w.cfg.linksDir()}, execute.Deps{
		Runtime: w.runtime, Observer: w.observer, Images: puller, Volumes: volume.Shown{Set: w.volumes, Table: w.table},
		Cgroups: userns.Cgroups{Manager: w.cgroups, Users: w.users}, EnsureCgroup: w.cgroups.Ensure, Builder: w.builder(),
		Hooks:    hook.New(hook.Deps{Exec: execreaper.Hooks{Client: w.runtime, Sessions: w.sessions}, Events: w.events, Metrics: w.metrics}),
		Finisher: w.statuses, Allocations: w.allocations, Ends: w.ends,
		Starts: limiter.New(limiter.Config{Acquired: w.idle.Begin}), Stops: limiter.New(limiter.Config{Acquired: w.idle.Begin}),
		Events: w.events, HostIPs: w.node.HostIPs, Metrics: w.deps.Metrics,
		Returns:   func(uid types.UID) bool { return w.pods.Returns(uid) },
		PluginHas: w.devices.Has,
	}), nil
}

// builder makes what the runtime is told of a pod.
func (w *wiring) builder() *criconfig.Builder {
	cfg := w.cfg
	return criconfig.New(criconfig.Config{
		RootDir: cfg.RootDir, PodLogsDir: cfg.Logs.Dir, NodeName: cfg.Node.Name, Standalone: cfg.Node.Standalone,
		ClusterDomain: cfg.Network.ClusterDomain, ClusterDNS: cfg.Network.ClusterDNS, ResolvConf: cfg.Network.ResolvConf,
		CPUCFSQuota: cfg.Cgroups.CPUCFSQuota, CPUCFSQuotaPeriod: cfg.Cgroups.CPUCFSQuotaPeriod,
		SeccompDefault: cfg.Pods.SeccompDefault, SingleProcessOOMKill: cfg.Pods.SingleProcessOOMKill, LimitedSwap: cfg.Pods.LimitedSwap,
		MemoryQoS: resources.MemoryQoS(cfg.Cgroups.MemoryQoS), ReservedMemoryBytes: cfg.Cgroups.ReservedMemoryBytes,
		NoEnvFiles: !cfg.Pods.EnvFiles, NoHostnameOverride: !cfg.Pods.HostnameOverride, NoStopSignals: !cfg.Pods.StopSignals,
	}, criconfig.Deps{
		Objects: w.objects, Volumes: w.volumes, Images: w.runtime, Cgroups: w.cgroups, HostIPs: w.node.HostIPs, UserNamespaces: w.users,
		Allocatable: w.node.Allocatable, Capacity: w.node.Capacity, Handlers: w.handlers, Recorder: event.Kube{Recorder: w.events},
		Written: w.hosts.Watch,
	})
}

// puller makes what pulls images.
func (w *wiring) puller() (*image.Puller, error) {
	cfg := w.cfg.Images
	deps := image.Deps{Client: w.runtime, Secrets: w.objects, Events: w.events, Metrics: w.deps.Metrics}
	if cfg.Verify {
		w.pulls = pullrecord.New(pullrecord.Config{RootDir: w.cfg.RootDir, Policy: cfg.VerifyPolicy, Allowlist: cfg.VerifyAllowlist})
		deps.Records = w.pulls
		w.parts = append(w.parts, part{name: "old pulls", once: true, run: func(ctx context.Context) error {
			w.pulls.Run(ctx, w.imageRef)
			return nil
		}})
	}
	if cfg.CredentialProviderConfig != "" {
		list, err := credentialprovider.Load(cfg.CredentialProviderConfig, cfg.CredentialProviderBinDir)
		if err != nil {
			return nil, err
		}
		with := credentialprovider.Deps{Metrics: w.deps.Metrics}
		if w.deps.Client != nil && cfg.CredentialProviderTokens {
			with.Accounts, with.Tokens = credentialprovider.FromClient(w.deps.Client), w.tokens
		}
		deps.Providers = credentialprovider.New(credentialprovider.Config{BinDir: cfg.CredentialProviderBinDir, Providers: list, Fits: image.Fits}, with)
	}
	return image.New(image.Config{
		Parallel: cfg.MaxParallelPulls, QPS: cfg.PullQPS, Burst: cfg.PullBurst, CredentialFiles: image.CredentialFiles(w.cfg.RootDir),
	}, deps), nil
}

// imageRef is what the runtime calls an image that is present; empty for none.
func (w *wiring) imageRef(ctx context.Context, name string) (string, error) {
	img, err := w.runtime.Image(ctx, name)
	return img.GetId(), err
}

// housekeeping makes what keeps logs and images within their bounds.
func (w *wiring) housekeeping() {
	rotated := w.cfg.Logs
	w.rotator = logrotate.New(logrotate.Config{
		PodLogsDir: rotated.Dir, LinksDir: w.cfg.linksDir(), MaxSize: rotated.MaxSizeBytes, MaxFiles: rotated.MaxFiles,
		Workers: rotated.Workers, Interval: rotated.Interval,
	}, logrotate.Deps{Runtime: w.runtime, Containers: w.table})
	var records imagegc.Records
	if w.pulls != nil {
		records = w.pulls
	}
	w.images = &inventory.Images{Client: w.runtime, Names: w.imageNames, Health: w.deps.Health}
	w.collector = imagegc.New(imagegc.Config{
		HighPercent: w.cfg.Images.GCHighPercent, LowPercent: w.cfg.Images.GCLowPercent, MinAge: w.cfg.Images.MinAge, MaxAge: w.cfg.Images.MaxAge,
	}, imagegc.Deps{
		Runtime: inventory.Runtime{Client: w.runtime, PodsDir: w.podsDir(), PodLogsDir: rotated.Dir, Images: w.images, Spec: w.spec},
		Pods:    w.shown, Containers: w.table, Events: w.events, Metrics: w.deps.Metrics, Records: records, Sources: w.pods,
	})
	w.add("log rotation", w.rotator.Run)
	w.add("image collection", w.collector.Run)
}
