package selinuxtest

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestOnlyWhatIsCountedIsListed: a series of labels that has counted nothing is not there, and
// no other series is.
func TestOnlyWhatIsCountedIsListed(t *testing.T) {
	from := prometheus.NewRegistry()
	for name, count := range map[string]float64{"volume_manager_selinux_volumes_admitted_total": 2, "volume_manager_selinux_pod_context_mismatch_errors_total": 0, "other_total": 1} {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "h"}, []string{"mode"})
		g.WithLabelValues("RWOP").Set(count)
		from.MustRegister(g)
	}
	if got := Counted(t, from); !slices.Equal(got, []string{"volumes_admitted RWOP"}) {
		t.Errorf("it lists %q", got)
	}
}
