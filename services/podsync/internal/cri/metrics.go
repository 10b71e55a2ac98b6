package cri

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the calls to the runtime. The zero of a pointer counts nothing.
type Metrics struct {
	operations *prometheus.CounterVec
	errors     *prometheus.CounterVec
	duration   *prometheus.HistogramVec
}

// NewMetrics registers the counters; reg must not be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Cumulative number of runtime operations by operation type.",
		}, []string{"operation_type"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Cumulative number of runtime operation errors by operation type.",
		}, []string{"operation_type"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "Duration in seconds of runtime operations. Broken down by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{"operation_type"}),
	}
	reg.MustRegister(m.operations, m.errors, m.duration)
	return m
}

func (m *Metrics) observe(op string, began time.Time, err error) {
	if m == nil {
		return
	}
	m.operations.WithLabelValues(op).Inc()
	m.duration.WithLabelValues(op).Observe(time.Since(began).Seconds())
	if err != nil {
		m.errors.WithLabelValues(op).Inc()
	}
}
