package metricdoc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestFamiliesAreListedWithAndWithoutSeries(t *testing.T) {
	r := New()
	r.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "b_total", Help: "A \"b\"."}, []string{"z", "a"}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "c_seconds", Help: "c", Buckets: []float64{.5, 1e6}}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "a", Help: "a", ConstLabels: prometheus.Labels{"k": "v"}}, func() float64 { return 1 }),
	)
	want := "a gauge {k}\nb_total counter {a,z}\nc_seconds histogram [0.5 1e+06]\n"
	if diff := cmp.Diff(want, string(r.Text())); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
	if got := r.Families()[1].Help; got != `A "b".` {
		t.Errorf("help is %q", got)
	}
}
