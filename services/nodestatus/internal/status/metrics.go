package status

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics says how the start of the node went. A nil Metrics says nothing.
type Metrics struct {
	start        time.Time
	registration prometheus.Gauge
	startup      prometheus.Gauge
	once         sync.Once
}

// NewMetrics registers the metrics; start is when the process started.
func NewMetrics(registry prometheus.Registerer, nodeName string, start time.Time) (*Metrics, error) {
	m := &Metrics{
		start: start,
		registration: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_node_startup_registration_duration_seconds", Help: "[ALPHA] How long the registration of the node took.",
		}),
		startup: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_node_startup_duration_seconds", Help: "[ALPHA] How long it took from the start until the node was ready.",
		}),
	}
	name := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "[ALPHA] Always 1; the label is the node's name."}, []string{"node"})
	name.WithLabelValues(nodeName).Set(1)
	for _, c := range []prometheus.Collector{m.registration, m.startup, name} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) registered(took time.Duration) {
	if m != nil {
		m.registration.Set(took.Seconds())
	}
}

func (m *Metrics) ready() {
	if m != nil {
		m.once.Do(func() { m.startup.Set(time.Since(m.start).Seconds()) })
	}
}
