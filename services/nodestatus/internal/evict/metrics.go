package evict

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Metrics counts evictions. A nil Metrics counts nothing.
type Metrics struct {
	evictions *prometheus.CounterVec
	statsAge  *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "[ALPHA] Cumulative number of pod evictions by eviction signal",
		}, []string{"eviction_signal"}),
		statsAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_eviction_stats_age_seconds", Buckets: prometheus.DefBuckets,
			Help: "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
		}, []string{"eviction_signal"}),
	}
	for _, c := range []prometheus.Collector{m.evictions, m.statsAge} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) evicted(signal string) {
	if m != nil {
		m.evictions.WithLabelValues(signal).Inc()
	}
}

// acted says by how old figures it is acted.
func (m *Metrics) acted(due []pressure.Met) {
	if m == nil {
		return
	}
	for _, d := range due {
		if !d.By.Time.IsZero() {
			m.statsAge.WithLabelValues(d.Signal).Observe(max(time.Since(d.By.Time), 0).Seconds())
		}
	}
}
