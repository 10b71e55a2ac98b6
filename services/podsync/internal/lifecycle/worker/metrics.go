package worker

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Metrics counts what workers do, under the names that dashboards know. The nil
// pointer counts nothing.
type Metrics struct {
	startedPods, startedPodsErrors     prometheus.Counter
	startedContainers, containerErrors *prometheus.CounterVec
	orphans                            prometheus.Counter
	putOffs                            *prometheus.CounterVec
	rejections, preemptions            *prometheus.CounterVec
	start, startSLI                    prometheus.Histogram
	life                               lifeMetrics
	resize                             resizeMetrics
}

// NewMetrics registers the metrics; reg must not be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	seconds := []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	m := &Metrics{
		resize:            newResizeMetrics(),
		startedPods:       counter("kubelet_started_pods_total", "Cumulative number of pods started"),
		startedPodsErrors: counter("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"),
		startedContainers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_total", Help: "Cumulative number of containers started",
		}, []string{"container_type"}),
		containerErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_errors_total", Help: "Cumulative number of errors when starting containers",
		}, []string{"container_type", "code"}),
		orphans: counter("kubelet_orphaned_runtime_pods_total", "Number of pods that have been detected in the container runtime without being already known to the pod worker."),
		putOffs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "polylet_pod_starts_put_off_total", Help: "Cumulative number of pods whose start was put off because the node had evicted others of their controller and still had the condition",
		}, []string{"condition"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total", Help: "Cumulative number pod admission rejections by the Kubelet.",
		}, []string{"reason"}),
		preemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_preemptions", Help: "Cumulative number of pod preemptions by preemption resource",
		}, []string{"preemption_signal"}),
		start: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", Buckets: seconds,
		}),
		startSLI: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_sli_duration_seconds", Help: "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch", Buckets: seconds,
		}),
	}
	reg.MustRegister(m.startedPods, m.startedPodsErrors, m.startedContainers, m.containerErrors, m.orphans, m.rejections, m.preemptions, m.putOffs, m.start, m.startSLI)
	m.life = newLifeMetrics(reg, seconds)
	reg.MustRegister(m.resize.all()...)
	return m
}

// firstStart is what is known of a pod's first start, for the metrics.
type firstStart struct {
	seen    time.Time
	pulling time.Duration
	told    bool // that it began
}

// acted counts the end of an action. What failed counts among what was started, and
// an image that could not be had as a container that did not start: alerts divide the
// errors by the total.
func (m *Metrics) acted(pod *v1.Pod, o outcome, reason string) {
	if m == nil || pod == nil || o.cancelled {
		return
	}
	switch kind := o.action.Kind; {
	case kind == podstate.MakeSandbox:
		m.startedPods.Inc()
		if o.err != nil {
			m.startedPodsErrors.Inc()
		}
		m.userNamespace(pod, o.err)
	case kind == podstate.StartContainer, kind == podstate.PullImage && o.err != nil && o.action.Container != "" && !o.action.Early:
		label := typeOf(pod, o.action.Container)
		m.startedContainers.WithLabelValues(label).Inc()
		if o.err != nil {
			m.containerErrors.WithLabelValues(label, reason).Inc()
		}
	}
}

// began counts a pod that runs for the first time. seen is when this process
// saw it first, pulling how long it waited for images.
func (m *Metrics) began(pod *v1.Pod, seen, now time.Time, pulling time.Duration) {
	if m == nil {
		return
	}
	m.start.Observe(now.Sub(seen).Seconds())
	m.life.containersPerPod.Observe(float64(len(pod.Spec.Containers)))
	created := pod.CreationTimestamp.Time
	if created.IsZero() {
		return
	}
	// A creation timestamp has whole seconds; what was seen before cannot have
	// been created later.
	since := now.Sub(created)
	if seen.Sub(created) < time.Second {
		since = now.Sub(seen)
	}
	m.life.startTotal.Observe(max(0, since).Seconds())
	if len(pod.Spec.InitContainers) == 0 {
		m.startSLI.Observe(max(0, since-pulling).Seconds())
	}
}

func (m *Metrics) orphaned() {
	if m != nil {
		m.orphans.Inc()
	}
}

// rejected counts a pod that admission refused. Reasons that name a resource of
// somebody's own, or that are not Kubernetes', share a label: their number has no bound.
func (m *Metrics) rejected(reason string) {
	if m == nil {
		return
	}
	if resource, short := strings.CutPrefix(reason, "OutOf"); short && strings.Contains(resource, "/") {
		reason = "OutOfExtendedResources"
	}
	switch reason {
	case "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "OutOfExtendedResources", "Evicted", "SysctlForbidden",
		"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "InvalidNodeInfo", "PodOSSelectorNodeLabelDoesNotMatch",
		"PodOSNotSupported", "SupplementalGroupsPolicyNotSupported", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration",
		"AppArmor", "PodLevelResourcesNotSupported", "PodFeatureUnsupported", "NodeShutdown", "UnknownReason", "UnexpectedPredicateFailureType",
		attachmentLimit:
	default:
		reason = "Other"
	}
	m.rejections.WithLabelValues(reason).Inc()
}

func (m *Metrics) startPutOff(conditions []string) {
	if m == nil {
		return
	}
	for _, c := range conditions { // One of three each.
		m.putOffs.WithLabelValues(c).Inc()
	}
}

func (m *Metrics) preempted(signal string) {
	if m != nil {
		m.preemptions.WithLabelValues(signal).Inc()
	}
}

func typeOf(pod *v1.Pod, container string) string {
	switch _, kind := podutil.Container(pod, container); kind {
	case podutil.Init:
		return "init_container"
	case podutil.Ephemeral:
		return "ephemeral_container"
	default:
		return "container"
	}
}
