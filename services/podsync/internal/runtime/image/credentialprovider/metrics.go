package credentialprovider

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
)

// metrics are the plugins' counts; nil counts nothing.
type metrics struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, providers []kubeletconfigv1.CredentialProvider) *metrics {
	if r == nil {
		return nil
	}
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_credential_provider_plugin_duration", Help: "Duration of execution in seconds for credential provider plugin",
		}, []string{"plugin_name"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total", Help: "Number of errors from credential provider plugin",
		}, []string{"plugin_name"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_credential_provider_config_info", Help: "Information about the last applied credential provider configuration with hash as label",
	}, []string{"hash"})
	if data, err := json.Marshal(providers); err == nil && len(providers) > 0 {
		sum := sha256.Sum256(data)
		info.WithLabelValues("sha256:" + hex.EncodeToString(sum[:])).Set(1)
	}
	r.MustRegister(m.duration, m.errors, info)
	return m
}

func (m *metrics) ran(name string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.duration.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(name).Inc()
	}
}
