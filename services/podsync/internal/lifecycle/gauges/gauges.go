// Package gauges counts the node's pods, containers and volumes when somebody asks
// for the series that show them.
//
// It owns the names and labels of those series. It must never keep a count.
package gauges

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// Runtime knows what runs; *observe.Observer has it.
type Runtime interface {
	Count() (pods int, containers map[podstate.ContainerState]int)
	Runtime() observe.Runtime
}

// Workers know what is to be done; *worker.Registry has it.
type Workers interface {
	Count() map[worker.Work]int
}

// Volumes are counted by plugin; *volume.Set has it.
type Volumes interface {
	Wanted() map[string]int
	Present() map[string]int
}

// Pods are what is shown to others; *podcache.Pods has it.
type Pods interface {
	List() []podcache.Pod
}

// Gauges count. It implements prometheus.Collector.
type Gauges struct {
	Runtime Runtime
	Workers Workers
	Volumes Volumes
	Pods    Pods
	// Mirrored is false where nobody is shown static pods.
	Mirrored bool
}

var (
	runningPods       = prometheus.NewDesc("kubelet_running_pods", "Number of pods that have a running pod sandbox", nil, nil)
	runningContainers = prometheus.NewDesc("kubelet_running_containers", "Number of containers currently running", []string{"container_state"}, nil)
	desiredPods       = prometheus.NewDesc("kubelet_desired_pods", "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	activePods        = prometheus.NewDesc("kubelet_active_pods", "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	workingPods       = prometheus.NewDesc("kubelet_working_pods", "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static.", []string{"config", "lifecycle", "static"}, nil)
	ephemeral         = prometheus.NewDesc("kubelet_managed_ephemeral_containers", "Current number of ephemeral containers in pods managed by this kubelet.", nil, nil)
	lastRelist        = prometheus.NewDesc("kubelet_pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active.", nil, nil)
	volumes           = prometheus.NewDesc("volume_manager_total_volumes", "Number of volumes in Volume Manager", []string{"plugin_name", "state"}, nil)
	pendingResizes    = prometheus.NewDesc("kubelet_pod_pending_resizes", "Number of pods whose resize is not allocated, by reason", []string{"reason"}, nil)
	resizesInProgress = prometheus.NewDesc("kubelet_pod_in_progress_resizes", "Number of pods whose resize is allocated and not yet in effect", nil, nil)
	mirrorPods        = prometheus.NewDesc("kubelet_mirror_pods", "The number of mirror pods the kubelet will try to create (one per admitted static pod)", nil, nil)
)

// Describe implements prometheus.Collector.
func (Gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runningPods, runningContainers, desiredPods, activePods, workingPods, ephemeral, lastRelist, volumes, mirrorPods, pendingResizes, resizesInProgress} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (g Gauges) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	sandboxes, states := g.Runtime.Count()
	gauge(runningPods, sandboxes)
	for state, name := range map[podstate.ContainerState]string{
		podstate.StateCreated: "created", podstate.StateRunning: "running", podstate.StateExited: "exited", podstate.StateUnknown: "unknown",
	} {
		gauge(runningContainers, states[state], name)
	}
	seen := 0. // before the first: alerts look at how long ago it was
	if at := g.Runtime.Runtime().LastRelist; !at.IsZero() {
		seen = float64(at.UnixNano()) / 1e9
	}
	c <- prometheus.MustNewConstMetric(lastRelist, prometheus.GaugeValue, seen)
	for work, n := range g.Workers.Count() {
		gauge(workingPods, n, work.Config, work.Lifecycle, label(work.Static))
	}
	for _, state := range []struct {
		name    string
		volumes map[string]int
	}{{"desired_state_of_world", g.Volumes.Wanted()}, {"actual_state_of_world", g.Volumes.Present()}} {
		for plugin, n := range state.volumes {
			gauge(volumes, n, plugin, state.name)
		}
	}
	g.pods(gauge)
	g.resizes(gauge)
}

// pods counts the pods by what is wanted and what is done of them.
func (g Gauges) pods(gauge func(d *prometheus.Desc, n int, labels ...string)) {
	desired, active, static, debugging := map[bool]int{}, map[bool]int{}, 0, 0
	for _, p := range g.Pods.List() {
		debugging += len(p.Pod.Spec.EphemeralContainers)
		desired[p.Static]++
		if p.Static {
			static++
		}
		if !podutil.TerminalPhase(p.Status.Phase) {
			active[p.Static]++
		}
	}
	gauge(ephemeral, debugging)
	for _, is := range []bool{false, true} {
		gauge(desiredPods, desired[is], label(is))
		gauge(activePods, active[is], label(is))
	}
	if !g.Mirrored {
		static = 0 // nobody to show a mirror to
	}
	gauge(mirrorPods, static)
}

// resizes counts the pods whose resize waits or is under way.
func (g Gauges) resizes(gauge func(d *prometheus.Desc, n int, labels ...string)) {
	waiting, under := map[string]int{v1.PodReasonDeferred: 0, v1.PodReasonInfeasible: 0}, 0
	for _, p := range g.Pods.List() {
		for _, c := range p.Status.Conditions {
			switch c.Type {
			case v1.PodResizePending:
				waiting[c.Reason]++
			case v1.PodResizeInProgress:
				under++
			}
		}
	}
	for reason, n := range waiting {
		gauge(pendingResizes, n, strings.ToLower(reason))
	}
	gauge(resizesInProgress, under)
}

// label is a bool as the kubelet's metrics write it: empty for false.
func label(is bool) string {
	if is {
		return "true"
	}
	return ""
}
