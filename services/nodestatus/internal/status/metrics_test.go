package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTheStartIsTakenApartAndItsEndCountsOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		boot time.Duration // before the process; 0: nobody knows
		want float64
	}{
		"from the machine's start":                   {time.Minute, 60 + 3 + 2},
		"from the process's, the other is not known": {0, 3 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				boot := time.Time{}
				if tc.boot > 0 {
					boot = start.Add(-tc.boot)
				}
				m, err := NewMetrics(prometheus.NewRegistry(), "n1", start, boot)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second) // Virtual, as all here.
				m.registered(time.Second)
				time.Sleep(2 * time.Second)
				m.ready()
				time.Sleep(time.Hour)
				m.ready() // It was not ready for a while.
				for gauge, want := range map[prometheus.Gauge]float64{m.preRegistration: 2, m.registration: 1, m.postRegistration: 2, m.startup: tc.want} {
					if got := testutil.ToFloat64(gauge); got != want {
						t.Errorf("%s: %g, want %g", gauge.Desc(), got, want)
					}
				}
			})
		})
	}
}

func TestWithoutMetricsNothingIsSaid(*testing.T) {
	var m *Metrics
	m.registered(time.Second)
	m.ready()
}
