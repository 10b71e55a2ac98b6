// Package metrics counts what podsync does beside its workers and the calls to
// the runtime: looks at the runtime, writing of status, volumes, cgroups and
// lifecycle handlers. It owns the series' names, labels and buckets, which are
// the kubelet's; it must never count what was not done.
//
// The nil pointer counts nothing.
package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics holds the series. Safe for concurrent use.
type Metrics struct {
	relist, interval              prometheus.Histogram
	events                        *eventMetrics
	statusSync                    prometheus.Histogram
	statusRefused                 *prometheus.CounterVec
	cgroup                        *prometheus.HistogramVec
	storage, storageTotal, csi    *prometheus.HistogramVec
	httpFallbacks, sleepsCutShort prometheus.Counter
	losing                        *prometheus.GaugeVec
	selinux                       *selinuxMetrics

	// reg takes those that are there with a gate only.
	reg                  prometheus.Registerer
	protects             sync.Once
	memoryMin, memoryLow prometheus.Gauge
}

type eventMetrics struct {
	connected, failed prometheus.Counter
	latency           prometheus.Histogram
}

// storageBuckets are those of operations on volumes, in seconds.
var storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// New registers the series on reg, which must not be nil.
func New(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reg:       reg,
		memoryMin: gauge("kubelet_memory_qos_node_memory_min_bytes", "Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never reclaimed by the kernel."),
		memoryLow: gauge("kubelet_memory_qos_node_memory_low_bytes", "Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be reclaimed under extreme pressure."),
		relist:    histogram("kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets),
		interval:  histogram("kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", prometheus.DefBuckets),
		events: &eventMetrics{
			connected: counter("kubelet_evented_pleg_connection_success_count", "The number of times a streaming client was obtained to receive CRI Events."),
			failed:    counter("kubelet_evented_pleg_connection_error_count", "The number of errors encountered during the establishment of streaming connection with the CRI runtime."),
			latency:   histogram("kubelet_evented_pleg_connection_latency_seconds", "How long a connection to the CRI runtime for events lasted, in seconds.", prometheus.DefBuckets),
		},
		statusSync: histogram("kubelet_pod_status_sync_duration_seconds",
			"Duration in seconds to sync a pod status update: from the change until the apiserver has it.", []float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60}),
		statusRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "polylet_pod_status_refused_parts_total", Help: "Parts of pod statuses, by field, that the apiserver refuses for good and that are left out of what is written.",
		}, []string{"field"}),
		cgroup: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_cgroup_manager_duration_seconds", Help: "Duration in seconds for cgroup manager operations, by method.",
		}, []string{"operation_type"}),
		storage: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "Duration in seconds of one operation on a volume.", Buckets: storageBuckets,
		}, []string{"migrated", "operation_name", "status", "volume_plugin"}),
		storageTotal: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "Duration in seconds from when a volume was first wanted until it was mounted.", Buckets: storageBuckets,
		}, []string{"operation_name", "plugin_name"}),
		csi: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_operations_seconds", Help: "Container Storage Interface operation duration with gRPC error code status total", Buckets: storageBuckets,
		}, []string{"driver_name", "grpc_status_code", "method_name", "migrated"}),
		httpFallbacks:  counter("kubelet_lifecycle_handler_http_fallbacks_total", "The number of times lifecycle handlers successfully fell back to http from https."),
		sleepsCutShort: counter("kubelet_sleep_action_terminated_early_total", "The number of times lifecycle sleep handler got terminated before it finished"),
	}
	m.losing = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_cri_losing_support", Help: "the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded.",
	}, []string{"version"})
	m.selinux = newSELinux(reg)
	reg.MustRegister(m.losing, m.relist, m.interval, m.events.connected, m.events.failed, m.events.latency, m.statusSync, m.statusRefused, m.cgroup,
		m.storage, m.storageTotal, m.csi, m.httpFallbacks, m.sleepsCutShort)
	return m
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// MemoryProtected shows how much memory of guaranteed pods is protected in any case, and
// of burstable ones as long as others have something to give, in bytes. The series are
// there from the first call on.
func (m *Metrics) MemoryProtected(minimum, low int64) {
	if m == nil {
		return
	}
	m.protects.Do(func() { m.reg.MustRegister(m.memoryMin, m.memoryLow) })
	m.memoryMin.Set(float64(minimum))
	m.memoryLow.Set(float64(low))
}

// Relisted counts a look at all that the runtime has; since is how long before
// it the last one began, zero for the first.
func (m *Metrics) Relisted(took, since time.Duration) {
	if m == nil {
		return
	}
	m.relist.Observe(took.Seconds())
	if since > 0 {
		m.interval.Observe(since.Seconds())
	}
}

// EventsOpened counts a stream of container events that stands.
func (m *Metrics) EventsOpened() {
	if m != nil {
		m.events.connected.Inc()
	}
}

// EventsEnded counts the end of an attempt to follow events. opened says whether
// the stream ever stood; lasted is how long it did.
func (m *Metrics) EventsEnded(opened bool, lasted time.Duration) {
	switch {
	case m == nil:
	case opened:
		m.events.latency.Observe(lasted.Seconds())
	default:
		m.events.failed.Inc()
	}
}

// StatusWritten counts a status that the apiserver has taken.
func (m *Metrics) StatusWritten(took time.Duration) {
	if m != nil {
		m.statusSync.Observe(took.Seconds())
	}
}

// StatusRefused counts a part of a status, named by its field, that the
// apiserver refuses for good.
func (m *Metrics) StatusRefused(field string) {
	if m != nil {
		m.statusRefused.WithLabelValues(field).Inc()
	}
}

// Cgroup counts one operation (create, update, destroy) that began at a time.
func (m *Metrics) Cgroup(operation string, began time.Time) {
	if m != nil {
		m.cgroup.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	}
}

// Volume counts one attempt at an operation (volume_mount, map_volume, volume_unmount) on a
// volume of a plugin, named as in kubernetes.io/empty-dir. migrated: it is of before CSI.
func (m *Metrics) Volume(operation, plugin string, migrated bool, began time.Time, err error) {
	if m == nil {
		return
	}
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.storage.WithLabelValues(strconv.FormatBool(migrated), operation, status, plugin).Observe(time.Since(began).Seconds())
}

// VolumeMounted counts a volume of a plugin that a pod has now; wanted is when it was first
// to be mounted for the pod, whatever was waited for and failed since.
func (m *Metrics) VolumeMounted(plugin string, wanted time.Time) {
	if m != nil {
		m.storageTotal.WithLabelValues("overall_volume_mount", plugin).Observe(time.Since(wanted).Seconds())
	}
}

// CSI counts one call of a CSI driver; code is the name of its gRPC code.
func (m *Metrics) CSI(driver, method, code string, migrated bool, took time.Duration) {
	if m != nil {
		m.csi.WithLabelValues(driver, code, method, strconv.FormatBool(migrated)).Observe(took.Seconds())
	}
}

// ForgetCSI drops what was counted of a driver that is long gone.
func (m *Metrics) ForgetCSI(driver string) {
	if m != nil {
		m.csi.DeletePartialMatch(prometheus.Labels{"driver_name": driver})
		m.selinux.forget(driver)
	}
}

// LosesSupport shows that the kubelet of this release will refuse the runtime.
func (m *Metrics) LosesSupport(release string) {
	if m != nil {
		m.losing.WithLabelValues(release).Set(1)
	}
}

// FellBackToHTTP counts a lifecycle handler that worked without TLS only.
func (m *Metrics) FellBackToHTTP() {
	if m != nil {
		m.httpFallbacks.Inc()
	}
}

// SleepCutShort counts a sleep that ended before its time.
func (m *Metrics) SleepCutShort() {
	if m != nil {
		m.sleepsCutShort.Inc()
	}
}
