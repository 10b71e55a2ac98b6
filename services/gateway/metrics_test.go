package gateway

import (
	"testing"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
	"github.com/polylet/polylet/services/gateway/internal/exposition"
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
	slis, err := exposition.NewSLIs()
	if err != nil {
		t.Fatal(err)
	}
	slis.ObserveCheck("ping", true)
	r.MustRegister(slis.Collectors()...)
	golden.Lines(t, "testdata/metrics.golden", r.Text())
}
