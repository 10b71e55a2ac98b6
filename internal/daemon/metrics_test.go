package daemon

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
)

func TestEveryProcessShowsItsBuildAndWhatItLacks(t *testing.T) {
	d, err := New(Options{Service: "stats"})
	if err != nil {
		t.Fatal(err)
	}
	d.Health().Set("runtime", false, "away")
	const want = `
# HELP polylet_dependency_ready Whether what the process depends on can be used (1) or not (0).
# TYPE polylet_dependency_ready gauge
polylet_dependency_ready{dependency="runtime"} 0
`
	if err := testutil.GatherAndCompare(d.Metrics(), strings.NewReader(want), "polylet_dependency_ready"); err != nil {
		t.Error(err)
	}
	r := metricdoc.New()
	r.MustRegister(buildMetric(), dependencies{d.tracker})
	golden.Lines(t, "testdata/metrics.golden", r.Text())
}
