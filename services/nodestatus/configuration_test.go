package nodestatus

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/internal/testkit/metricdoc"
)

func TestHowTheConfigurationStandsIsInMetrics(t *testing.T) {
	r := metricdoc.New()
	m, err := newConfigurationMetrics(r)
	if err != nil || !strings.Contains(string(r.Text()), "polylet_config_error") {
		t.Fatalf("%v %s", err, r.Text())
	}
	s := &Service{configuration: m}
	for _, c := range []Configuration{{Generation: 3, Wrong: true}, {Generation: 4}} {
		s.ShowConfiguration(c)
		registry := prometheus.NewRegistry()
		registry.MustRegister(m.generation, m.wrong)
		families, err := registry.Gather()
		if err != nil || len(families) != 2 {
			t.Fatal(families, err)
		}
		wrong, generation := families[0].GetMetric()[0].GetGauge().GetValue(), families[1].GetMetric()[0].GetGauge().GetValue()
		if (wrong == 1) != c.Wrong || generation != float64(c.Generation) {
			t.Errorf("%+v is shown as %v, %v", c, wrong, generation)
		}
	}
}
