package image

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
)

// metrics are the counts of a Puller; nil counts nothing.
type metrics struct {
	requests *prometheus.CounterVec
	checks   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, ledger *pullrecord.Ledger) *metrics {
	if r == nil {
		return nil
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total",
			Help: "Number of ensure-image requests processed by the kubelet.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_imagemanager_image_mustpull_checks_total",
			Help: "Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_image_pull_duration_seconds",
			Help:    "Duration in seconds to pull an image.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	r.MustRegister(m.requests, m.checks, m.duration)
	if ledger == nil {
		return m
	}
	gauge := func(name, help string, count func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(count()) }))
	}
	gauge("kubelet_imagemanager_ondisk_pullintents", "Number of ImagePullIntents stored on disk.", func() int { n, _ := ledger.Count(); return n })
	gauge("kubelet_imagemanager_ondisk_pulledrecords", "Number of ImagePulledRecords stored on disk.", func() int { _, n := ledger.Count(); return n })
	return m
}

func (m *metrics) ensured(policy v1.PullPolicy, present, required bool) {
	if m == nil {
		return
	}
	words := map[v1.PullPolicy]string{v1.PullAlways: "always", v1.PullIfNotPresent: "ifnotpresent", v1.PullNever: "never"}
	here := strconv.FormatBool(present)
	if policy == v1.PullAlways {
		here = "unknown" // nobody looked
	}
	m.requests.WithLabelValues(words[policy], here, strconv.FormatBool(required)).Inc()
}

func (m *metrics) checked(must bool) {
	if m == nil {
		return
	}
	result := "mustPull"
	if !must {
		result = "credentialPolicyAllowed"
	}
	m.checks.WithLabelValues(result).Inc()
}

func (m *metrics) pulled(r result) {
	if m != nil {
		m.duration.WithLabelValues(sizeClass(r.size)).Observe(r.took.Seconds())
	}
}

// sizeClass is the image's size as one of few words, so that the number of
// series is bounded.
func sizeClass(bytes uint64) string {
	const mb = 1 << 20
	for _, c := range []struct {
		below uint64
		name  string
	}{
		{10 * mb, "0-10MB"}, {100 * mb, "10MB-100MB"}, {500 * mb, "100MB-500MB"}, {1000 * mb, "500MB-1GB"}, {5000 * mb, "1GB-5GB"},
		{10000 * mb, "5GB-10GB"}, {20000 * mb, "10GB-20GB"}, {30000 * mb, "20GB-30GB"}, {40000 * mb, "30GB-40GB"}, {60000 * mb, "40GB-60GB"},
		{100000 * mb, "60GB-100GB"},
	} {
		if bytes < c.below {
			return c.name
		}
	}
	return "GT100GB"
}
