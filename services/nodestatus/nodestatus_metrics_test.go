package nodestatus

import (
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
	"github.com/polylet/polylet/services/nodestatus/internal/status"
)

func TestTheMetricsAreAsRecorded(t *testing.T) {
	r := metricdoc.New()
	if _, err := status.NewMetrics(r, "n1", time.Now(), bootTime()); err != nil {
		t.Fatal(err)
	}
	r.MustRegister(clientTTL(nil))
	if _, err := newCertificateMetrics(r); err != nil {
		t.Fatal(err)
	}
	if _, err := evict.NewMetrics(r); err != nil {
		t.Fatal(err)
	}
	golden.Lines(t, "testdata/metrics.golden", r.Text())
}

func TestTheMachineStartedBeforeThisProcess(t *testing.T) {
	if boot := bootTime(); boot.IsZero() || boot.After(time.Now()) {
		t.Errorf("the machine started at %s", boot)
	}
}
