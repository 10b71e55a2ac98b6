package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// What made a resize that waits be decided on again.
const (
	triggerUpdated  = "pod_updated"
	triggerPeriodic = "periodic_retry"
	triggerRemoved  = "pods_removed"
	triggerResized  = "pod_resized"
	triggerNode     = "node_updated"
)

// resizeMetrics counts resizes.
type resizeMetrics struct {
	requested  *prometheus.CounterVec
	infeasible *prometheus.CounterVec
	accepted   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
}

func newResizeMetrics() resizeMetrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return resizeMetrics{
		requested:  vec("kubelet_container_requested_resizes_total", "Number of requested resizes, counted at the container level", "resource", "requirement", "operation"),
		infeasible: vec("kubelet_pod_infeasible_resizes_total", "Number of resizes that this node can never carry out", "reason_detail"),
		accepted:   vec("kubelet_pod_deferred_accepted_resizes_total", "Number of resizes that were allocated after they had to wait", "retry_trigger"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_resize_duration_milliseconds", Help: "Time from a resize's allocation until it is in effect, in milliseconds",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
		}, []string{"success"}),
	}
}

func (m resizeMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requested, m.infeasible, m.accepted, m.duration}
}

// allocated counts a resize that was allocated after it had to wait; nil is one
// that had not.
func (m *Metrics) allocated(waited *podstate.ResizePending, trigger string) {
	if m != nil && waited != nil {
		m.resize.accepted.WithLabelValues(trigger).Inc()
	}
}

// pending counts a resize that begins to wait for ever.
func (m *Metrics) pending(p *podstate.ResizePending) {
	if m != nil && p.Reason == v1.PodReasonInfeasible {
		m.resize.infeasible.WithLabelValues(p.Message).Inc()
	}
}

// resized counts a resize that is in effect, or that another has replaced.
func (m *Metrics) resized(began time.Time, success bool) {
	if m == nil || began.IsZero() {
		return
	}
	label := "false"
	if success {
		label = "true"
	}
	m.resize.duration.WithLabelValues(label).Observe(float64(time.Since(began).Milliseconds()))
}

// requested counts what a new spec asks to change.
func (m *Metrics) requested(old, pod *v1.Pod) {
	if m == nil || old == nil {
		return
	}
	for _, c := range resize.Changes(old, pod) {
		m.resize.requested.WithLabelValues(c.Resource, c.Requirement, c.Operation).Inc()
	}
}
