package status

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics says how the start of the node went. A nil Metrics says nothing.
type Metrics struct {
	start, boot, registeredAt time.Time

	preRegistration, registration, postRegistration, startup prometheus.Gauge

	once sync.Once
}

// NewMetrics registers the metrics; start is when the process started, boot
// when the machine did, zero when that is not known.
func NewMetrics(registry prometheus.Registerer, nodeName string, start, boot time.Time) (*Metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_startup_" + name + "duration_seconds", Help: "[ALPHA] " + help})
	}
	m := &Metrics{
		start: start, boot: boot,
		preRegistration:  gauge("pre_registration_", "Duration in seconds of node startup before registration."),
		registration:     gauge("registration_", "Duration in seconds of node startup during registration."),
		postRegistration: gauge("post_registration_", "Duration in seconds of node startup after registration, until the node is ready."),
		startup:          gauge("", "Duration in seconds of node startup in total, from the start of the machine until the node is ready."),
	}
	preKubelet := gauge("pre_kubelet_", "Duration in seconds of node startup before kubelet starts.")
	if !boot.IsZero() {
		preKubelet.Set(start.Sub(boot).Seconds())
	}
	name := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "[ALPHA] The node's name. The count is always 1."}, []string{"node"})
	name.WithLabelValues(nodeName).Set(1)
	for _, c := range []prometheus.Collector{preKubelet, m.preRegistration, m.registration, m.postRegistration, m.startup, name} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// registered says that the registration, which took so long, is done.
func (m *Metrics) registered(took time.Duration) {
	if m == nil {
		return
	}
	m.registeredAt = time.Now()
	m.preRegistration.Set(m.registeredAt.Add(-took).Sub(m.start).Seconds())
	m.registration.Set(took.Seconds())
}

// ready says that the node is ready; only the first time counts.
func (m *Metrics) ready() {
	if m == nil {
		return
	}
	m.once.Do(func() {
		if !m.registeredAt.IsZero() {
			m.postRegistration.Set(time.Since(m.registeredAt).Seconds())
		}
		since := m.boot
		if since.IsZero() {
			since = m.start
		}
		m.startup.Set(time.Since(since).Seconds())
	})
}
