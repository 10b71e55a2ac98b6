package gateway

import (
	"testing"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
	"github.com/polylet/polylet/services/gateway/internal/identity"
	"github.com/polylet/polylet/services/gateway/internal/traffic"
)

func TestTheMetricsAreAsRecorded(t *testing.T) {
	r := metricdoc.New()
	if _, err := traffic.New(r); err != nil {
		t.Fatal(err)
	}
	if err := identity.Register(r, []Gate{{Name: "NodeSwap", On: true}}); err != nil {
		t.Fatal(err)
	}
	golden.Lines(t, "testdata/metrics.golden", r.Text())
}
