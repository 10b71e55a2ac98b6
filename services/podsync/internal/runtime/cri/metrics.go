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

	sandbox       *prometheus.HistogramVec
	sandboxErrors *prometheus.CounterVec
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
	m.sandbox = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_run_podsandbox_duration_seconds", Help: "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
	}, []string{"runtime_handler"})
	m.sandboxErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_run_podsandbox_errors_total", Help: "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
	}, []string{"runtime_handler"})
	reg.MustRegister(m.operations, m.errors, m.duration, m.sandbox, m.sandboxErrors)
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

// ranSandbox counts one sandbox that was to be started with a handler.
func (m *Metrics) ranSandbox(handler string, began time.Time, err error) {
	if m == nil {
		return
	}
	m.sandbox.WithLabelValues(handler).Observe(time.Since(began).Seconds())
	if err != nil {
		m.sandboxErrors.WithLabelValues(handler).Inc()
	}
}
