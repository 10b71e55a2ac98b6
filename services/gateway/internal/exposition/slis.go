package exposition

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/polylet/polylet/internal/service"
)

// SLIs are the results of the health checks as series. Safe for concurrent use;
// see NewSLIs. Source: KEP-3466.
type SLIs struct {
	registry *prometheus.Registry
	result   *prometheus.GaugeVec
	total    *prometheus.CounterVec
	document http.Handler
}

// NewSLIs returns SLIs without a series.
func NewSLIs() (*SLIs, error) {
	s := &SLIs{
		registry: prometheus.NewRegistry(),
		result: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
		}, []string{"name", "status", "type"}),
	}
	s.document = One(Source{Service: service.Gateway, Gather: s.gather})
	return s, errors.Join(s.registry.Register(s.result), s.registry.Register(s.total),
		s.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
}

// Collectors are the series alone, for whoever lists them.
func (s *SLIs) Collectors() []prometheus.Collector { return []prometheus.Collector{s.result, s.total} }

// ObserveCheck counts one result.
func (s *SLIs) ObserveCheck(name string, healthy bool) {
	status, value := "error", 0.0
	if healthy {
		status, value = "success", 1
	}
	const kind = "healthz"
	s.result.WithLabelValues(name, kind).Set(value)
	s.total.WithLabelValues(name, status, kind).Inc()
}

// ServeHTTP serves /metrics/slis; DELETE forgets all results.
func (s *SLIs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.result.Reset()
		s.total.Reset()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, "metrics reset\n") // a client that went away needs no answer
		return
	}
	s.document.ServeHTTP(w, r)
}

// gather leaves out what else the process tells of itself: /metrics has it.
func (s *SLIs) gather(context.Context) ([]*dto.MetricFamily, error) {
	families, err := s.registry.Gather()
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "process_") && f.GetName() != "process_start_time_seconds"
	}), err
}
