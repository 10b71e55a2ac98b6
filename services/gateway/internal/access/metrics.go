package access

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metrics are the kubelet's of the questions that it puts to the apiserver about
// tokens and about access.
type Metrics struct{ tokens, accesses *counts }

// NewMetrics makes them and puts them on r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{tokens: newCounts("apiserver_delegated_authn"), accesses: newCounts("apiserver_delegated_authz")}
	for _, c := range []prometheus.Collector{m.tokens.total, m.tokens.took, m.accesses.total, m.accesses.took} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// ofTokens and ofAccesses are nil where nothing is counted.
func (m *Metrics) ofTokens() *counts {
	if m == nil {
		return nil
	}
	return m.tokens
}

func (m *Metrics) ofAccesses() *counts {
	if m == nil {
		return nil
	}
	return m.accesses
}

// counts are those of one kind of question.
type counts struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newCounts(prefix string) *counts {
	return &counts{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_request_total", Help: "[ALPHA] Number of HTTP requests partitioned by status code.",
		}, []string{"code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_request_duration_seconds", Help: "[ALPHA] Request latency in seconds. Broken down by status code.",
			Buckets: []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10},
		}, []string{"code"}),
	}
}

// add counts one try; nil counts nothing.
func (c *counts) add(refusal *metav1.Status, err error, took time.Duration) {
	if c == nil {
		return
	}
	code := codeOf(refusal, err)
	c.total.WithLabelValues(code).Inc()
	c.took.WithLabelValues(code).Observe(took.Seconds())
}
