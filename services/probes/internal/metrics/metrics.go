// Package metrics owns the series of /metrics/probes, in the names that
// dashboards know from the kubelet. It must never count what was not tried.
package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// Probes holds the series. Safe for concurrent use.
type Probes struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// New registers the series and process_start_time_seconds on r.
func New(r prometheus.Registerer, start time.Time) (*Probes, error) {
	p := &Probes{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total",
			Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds",
			Help: "Duration in seconds for a probe response.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	began := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds",
		Help: "Start time of the process since unix epoch in seconds.",
	})
	began.Set(float64(start.UnixNano()) / 1e9)
	for _, c := range []prometheus.Collector{p.total, p.duration, began} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the probe metrics, which must have a registry of their own: %w", err)
		}
	}
	return p, nil
}

// Attempt counts one attempt. Those that said nothing about the container are
// not counted; the duration is that of attempts that succeeded.
func (p *Probes) Attempt(t probe.Target, v probe.Verdict, took time.Duration) {
	var result string
	switch v {
	case probe.Passed, probe.Warned:
		result = "successful"
		p.duration.WithLabelValues(t.Key.Type.String(), t.Key.Container, t.Name, t.Namespace).Observe(took.Seconds())
	case probe.Failed:
		result = "failed"
	default:
		return
	}
	p.total.WithLabelValues(t.Key.Type.String(), result, t.Key.Container, t.Name, t.Namespace, t.Key.PodUID).Inc()
}

// Forget drops the series of a probe that is gone.
func (p *Probes) Forget(t probe.Target) {
	p.total.DeletePartialMatch(prometheus.Labels{
		"probe_type": t.Key.Type.String(), "container": t.Key.Container, "pod_uid": t.Key.PodUID,
	})
	p.duration.DeleteLabelValues(t.Key.Type.String(), t.Key.Container, t.Name, t.Namespace)
}
