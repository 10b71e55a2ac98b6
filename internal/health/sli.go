package health

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// SLIs count health checks in the series of /metrics/slis, which every
// Kubernetes component has. Safe for concurrent use.
// Source: https://kubernetes.io/docs/reference/instrumentation/slis/
type SLIs struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
	before   func(*SLIs)
}

// Kind of the checks that are counted, the label type.
const checkKind = "healthz"

// NewSLIs returns SLIs without series. before, which may be nil, is called at
// the beginning of each Gather, to check what is checked on demand.
func NewSLIs(before func(*SLIs)) *SLIs {
	s := &SLIs{
		registry: prometheus.NewRegistry(),
		before:   before,
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "Result of the last health check: 1 is well, 0 is not.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Number of health checks by result.",
		}, []string{"name", "status", "type"}),
	}
	s.registry.MustRegister(s.last, s.total)
	return s
}

// Observe counts one check; a nil error is success.
func (s *SLIs) Observe(name string, err error) {
	status, value := "success", 1.0
	if err != nil {
		status, value = "error", 0
	}
	s.last.WithLabelValues(name, checkKind).Set(value)
	s.total.WithLabelValues(name, status, checkKind).Inc()
}

// Reset forgets all series; an HTTP DELETE of /metrics/slis does that.
func (s *SLIs) Reset() {
	s.last.Reset()
	s.total.Reset()
}

// Collectors are the series alone, for whoever lists them.
func (s *SLIs) Collectors() []prometheus.Collector { return []prometheus.Collector{s.last, s.total} }

// Gather implements prometheus.Gatherer.
func (s *SLIs) Gather() ([]*dto.MetricFamily, error) {
	if s.before != nil {
		s.before(s)
	}
	return s.registry.Gather()
}
