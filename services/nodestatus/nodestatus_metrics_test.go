package nodestatus

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
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
	for _, c := range shutdownTimes("") {
		r.MustRegister(c)
	}
	golden.Lines(t, "testdata/metrics.golden", r.Text())
}

func TestTheMachineStartedBeforeThisProcess(t *testing.T) {
	if boot := bootTime(); boot.IsZero() || boot.After(time.Now()) {
		t.Errorf("the machine started at %s", boot)
	}
}

func TestWhenTheLastShutdownWasIsAMetric(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graceful_node_shutdown_state")
	read := func() (values []float64) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(shutdownTimes(path)...)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families { // the end, then the start
			values = append(values, f.GetMetric()[0].GetGauge().GetValue())
		}
		return values
	}
	for text, want := range map[string][]float64{
		`{"startTime":"1970-01-01T00:01:00Z","endTime":"1970-01-01T00:02:00Z"}`: {120, 60},
		// The kubelet writes a zero time while it has not ended.
		`{"startTime":"1970-01-01T00:01:00Z","endTime":"0001-01-01T00:00:00Z"}`: {0, 60},
		`{"startTime":"1970-01-01T00:01:00Z"}`:                                  {0, 60},
		`rubbish`:                                                               {0, 0},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := read(); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("without a file: %v", got)
	}
}
