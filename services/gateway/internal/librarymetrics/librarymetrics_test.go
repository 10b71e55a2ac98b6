package librarymetrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestOnlyTheNamedSeriesArePassedOnAsTheyAre(t *testing.T) {
	library := prometheus.NewRegistry()
	asked := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"code"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "took_seconds", Help: "Took.", Buckets: []float64{1, 2}}, []string{"code"})
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other_total", Help: "Other."})
	library.MustRegister(asked, took, other)
	asked.WithLabelValues("200").Add(3)
	took.WithLabelValues("200").Observe(1.5)
	took.WithLabelValues("200").Observe(5)
	other.Inc()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&collector{from: library, series: map[string]*prometheus.Desc{
		"asked_total":  prometheus.NewDesc("asked_total", "Asked.", []string{"code"}, nil),
		"took_seconds": prometheus.NewDesc("took_seconds", "Took.", []string{"code"}, nil),
	}})
	want := `
# HELP asked_total Asked.
# TYPE asked_total counter
asked_total{code="200"} 3
# HELP took_seconds Took.
# TYPE took_seconds histogram
took_seconds_bucket{code="200",le="1"} 0
took_seconds_bucket{code="200",le="2"} 1
took_seconds_bucket{code="200",le="+Inf"} 2
took_seconds_sum{code="200"} 6.5
took_seconds_count{code="200"} 2
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
