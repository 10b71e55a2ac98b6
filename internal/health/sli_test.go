package health

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestHealthChecksAreCountedByResult(t *testing.T) {
	s := NewSLIs(func(s *SLIs) { s.Observe("ping", nil) })
	s.Observe("runtime", errors.New("away"))
	s.Observe("runtime", nil)
	const want = `
# HELP kubernetes_healthcheck Result of the last health check: 1 is well, 0 is not.
# TYPE kubernetes_healthcheck gauge
kubernetes_healthcheck{name="ping",type="healthz"} 1
kubernetes_healthcheck{name="runtime",type="healthz"} 1
# HELP kubernetes_healthchecks_total Number of health checks by result.
# TYPE kubernetes_healthchecks_total counter
kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1
kubernetes_healthchecks_total{name="runtime",status="error",type="healthz"} 1
kubernetes_healthchecks_total{name="runtime",status="success",type="healthz"} 1
`
	if err := testutil.GatherAndCompare(s, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	s.Reset()
	if families, err := s.Gather(); err != nil || len(families[0].GetMetric()) != 1 {
		t.Errorf("after a reset: %v, %v; want the check of the scrape alone", families, err)
	}
}
