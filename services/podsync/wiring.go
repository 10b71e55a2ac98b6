package podsync

import (
	"context"
	"path/filepath"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/admission/gate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/nodeinfo"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/desired/mirror"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/host/devices"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/leftovers"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/logrotate"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/gauges"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/stopping"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/report/conditions"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
	"github.com/polylet/polylet/services/podsync/internal/report/idle"
	"github.com/polylet/polylet/services/podsync/internal/report/notice"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/report/trace"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/nodecgroups"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
	"github.com/polylet/polylet/services/podsync/internal/runtime/logs"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
	"github.com/polylet/polylet/services/podsync/internal/runtime/podcidr"
	"github.com/polylet/polylet/services/podsync/internal/server"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// wiring makes podsync's parts and gives them to each other, from the bottom up.
type wiring struct {
	cfg  Config
	deps Deps

	// parts are what Run runs, and loads what it reads of a previous run before.
	parts []part
	loads []func(logr.Logger)

	// pods is the Registry, for those that it is made of: it is made last.
	pods *pods

	runtime  *cri.Client
	sessions *execreaper.Book
	objects  *objects.Store
	node     *nodeinfo.Node
	events   *event.Recorder
	// certificates is nil while the gate PodCertificateRequest is off.
	certificates *podcertificate.Cache
	idle         *idle.Gate
	lines        *timeline.Book
	mirrors      *mirror.Keeper
	statuses     *status.Writer
	metrics      *metrics.Metrics // nil without a registry
	probes       *probestore.Board
	conditions   *conditions.Keeper
	ends         *stopping.Keeper
	hosts        HostsGuard
	shown        *podcache.Pods
	table        *podcache.Table
	observer     *observe.Observer
	notices      notice.Notices
	sources      *source.Sources
	tokens       *serviceaccount.Cache
	users        *userns.Allocator
	volumes      *volume.Set
	stale        *volume.Stale
	csi          *csi.Volumes
	cgroups      cgroup.Manager
	nodeCgroups  *nodecgroups.Cgroups // nil when nobody makes cgroups
	podCIDR      *podcidr.Teller
	pulls        *pullrecord.Ledger // nil when nothing is verified
	allocations  *allocation.Store
	images       *inventory.Images
	collector    *imagegc.Collector
	rotator      *logrotate.Rotator
	gate         *gate.Gate
	devices      *devices.Left
	server       *server.Server
}

// pods is a Registry that is set when it is made.
type pods struct{ *worker.Registry }

// add has Run run something until podsync ends.
func (w *wiring) add(name string, run func(context.Context) error) {
	w.parts = append(w.parts, part{name: name, run: run})
}

func (w *wiring) build() error {
	w.pods, w.lines, w.idle = &pods{}, timeline.NewBook(), idle.New()
	w.table, w.shown = podcache.NewTable(w.deps.Epoch), podcache.NewPods(w.deps.Epoch)
	if w.deps.Metrics != nil {
		w.metrics = metrics.New(w.deps.Metrics)
	}
	if err := w.trace(); err != nil {
		return err
	}
	w.events = event.New(event.Config{NodeName: w.cfg.Node.Name}, event.Deps{Client: w.deps.Events, WaitIdle: w.idle.WaitIdle})
	w.askRuntime()
	w.followCluster()
	w.report()
	if err := w.want(); err != nil {
		return err
	}
	w.setUpHost()
	if err := w.work(); err != nil {
		return err
	}
	w.housekeeping()
	return w.serve()
}

// trace makes what sends spans, when a collector is configured. The connections
// to the runtime then make a span of each call that an action makes.
func (w *wiring) trace() error {
	if w.cfg.Tracing == nil {
		return nil
	}
	tracer, err := trace.New(context.Background(), trace.Config{
		Endpoint: w.cfg.Tracing.Endpoint, SamplingRatePerMillion: w.cfg.Tracing.SamplingPerMillion, NodeName: w.cfg.Node.Name,
	})
	if err != nil {
		return err
	}
	w.lines.Tracer = tracer
	w.deps.Runtime, w.deps.Images = cri.Traced(w.deps.Runtime, trace.Call), cri.Traced(w.deps.Images, trace.Call)
	w.add("traces", tracer.Run)
	return nil
}

// askRuntime makes what speaks to the runtime and looks at it.
func (w *wiring) askRuntime() {
	var calls *cri.Metrics
	if w.deps.Metrics != nil {
		calls = cri.NewMetrics(w.deps.Metrics)
	}
	w.runtime = cri.New(cri.Config{RequestTimeout: w.cfg.Runtime.RequestTimeout}, w.deps.Runtime, w.deps.Images, calls)
	w.sessions = execreaper.New(execreaper.Deps{Metrics: w.deps.Metrics})
	w.observer = observe.New(observe.Config{
		Endpoint: w.cfg.Runtime.Endpoint, PodsDir: w.podsDir(), PodLogsDir: w.cfg.Logs.Dir,
	}, observe.Deps{
		Client: w.runtime, Sink: runtimeSink{w.pods, w}, Health: w.deps.Health, Rows: w.table, Metrics: w.metrics,
	})
	w.add("exec sessions", w.sessions.Run)
	w.add("runtime", w.observer.Run)
}

// work makes what runs the pods.
func (w *wiring) work() error {
	cfg := w.cfg
	w.allocations = allocation.New(cfg.stateFile("allocations.json"), w.deps.Health)
	w.loads = append(w.loads, func(log logr.Logger) { w.allocations.LoadAll(log, cfg.RootDir) })
	w.add("allocations", w.allocations.Run)
	w.devices = devices.NewLeft(devices.Dir, filepath.Join(cfg.RootDir, "device-plugins"))
	w.loads = append(w.loads, w.lookForDevices)
	executor, err := w.executor()
	if err != nil {
		return err
	}
	var counts *worker.Metrics
	if w.deps.Metrics != nil {
		counts = worker.NewMetrics(w.deps.Metrics)
	}
	w.gate = gate.New(w.admission(), w.node, w.observer)
	admits := admits{w.gate}
	left := leftovers.Finder{LogsDir: cfg.Logs.Dir, Volumes: w.volumes, Cgroups: w.cgroups}
	if w.nodeCgroups != nil {
		left.Stand = w.nodeCgroups.Stand
	}
	w.pods.Registry = worker.New(worker.Config{Sources: w.sources.Names(), MaxDead: cfg.Pods.MaxDeadContainers}, worker.Deps{
		Executor: executor, Status: w.statuses, Probes: w.probes, Events: w.events, Pods: w.shown, Mirrors: w.mirrors, Metrics: counts,
		Conditions: w.conditions, Ends: w.ends, Timelines: w.lines, Allocations: w.allocations, Node: w.nodeFacts,
		Admit: admits.admit, Short: w.gate.Short, Unmet: admits.Unmet, Resize: admits.resize,
		OnDisk: left.Find, AllKnown: w.probes.Prune, InDoubt: w.notices.InDoubt, ActiveChanged: w.activeChanged(),
	})
	w.add("workers", w.pods.Run)
	if w.deps.Metrics != nil {
		w.deps.Metrics.MustRegister(gauges.Gauges{
			Runtime: w.observer, Workers: w.pods, Volumes: w.volumes, Pods: w.shown, Mirrored: w.deps.Client != nil,
		}, podcertificate.NewSeries(w.certificates))
	}
	return nil
}

// admission says which pods may run.
func (w *wiring) admission() gate.Config {
	cfg := w.cfg
	return gate.Config{
		Standalone: cfg.Node.Standalone, Deadline: cfg.Admission.Deadline, AllowedUnsafeSysctls: cfg.Admission.AllowedUnsafeSysctls,
		NoPodLevelResources: !cfg.Admission.PodLevelResources, DeclaredFeatures: cfg.Admission.DeclaredFeatures,
		Resize: resize.Policies{
			StaticCPU: cfg.Resize.StaticCPU, StaticMemory: cfg.Resize.StaticMemory,
			ExclusiveCPUs: cfg.Resize.ExclusiveCPUs, ExclusiveMemory: cfg.Resize.ExclusiveMemory, Swap: cfg.Pods.LimitedSwap,
			NoPodLevel: !cfg.Resize.PodLevel, NoInitContainers: !cfg.Resize.InitContainers,
		},
		GoneDevices: func() []v1.ResourceName { return w.devices.Last().Resources },
	}
}

// serve makes what answers RPCs.
func (w *wiring) serve() (err error) {
	w.server, err = server.New(server.Deps{
		Pods: w.shown, Table: w.table, Probes: w.probes, Explain: w.pods, Events: w.events, Mirrors: w.mirrors, CSIDrivers: w.csi, VolumesInUse: w.csi, Volumes: w.volumes, Unsettled: w.csi,
		Trouble: notice.Troubles{Statuses: w.statuses, Sources: w.sources, Volumes: w.stale}.Of,
		Runtime: servedRuntime{execreaper.Runtime{Raw: w.runtime.Raw(), Sessions: w.sessions}, w.images}, Sessions: w.sessions, ContainerRuns: w.runtime.ContainerRuns,
		Stops: stops{w.pods}, Pressure: w.setPressure, Reclaim: reclaims{w.pods, w.collector}, Shutdown: w.setShutdown,
		State: w.runtimeState, SandboxImage: w.runtime.SandboxImage,
		CheckpointDir: filepath.Join(w.cfg.RootDir, "checkpoints"), FreePercent: w.deps.FreePercent,
		Logs: logs.New(logs.Config{Root: w.cfg.Logs.Dir}, logs.Deps{Notifier: w.deps.LogNotifier}),
		LogPath: func(pod *v1.Pod, container string, restartCount int32) string {
			return logs.Path(w.cfg.Logs.Dir, pod, container, restartCount)
		},
	})
	if socket := w.cfg.PodsAPISocket; socket != "" {
		w.add("pods API", func(ctx context.Context) error { return w.server.ServePods(ctx, socket, w.deps.Health) })
	}
	return err
}

func (w *wiring) podsDir() string { return filepath.Join(w.cfg.RootDir, "pods") }
