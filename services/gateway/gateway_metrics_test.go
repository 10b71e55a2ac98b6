package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
	"github.com/polylet/polylet/services/gateway/internal/access"
	"github.com/polylet/polylet/services/gateway/internal/componentmetrics"
	"github.com/polylet/polylet/services/gateway/internal/exposition"
	"github.com/polylet/polylet/services/gateway/internal/httpmetrics"
	"github.com/polylet/polylet/services/gateway/internal/librarymetrics"
)

func TestTheMetricsAreAsRecorded(t *testing.T) {
	r := metricdoc.New()
	if _, err := httpmetrics.New(r); err != nil {
		t.Fatal(err)
	}
	if err := componentmetrics.Register(r, []Gate{{Name: "NodeSwap", On: true}}); err != nil {
		t.Fatal(err)
	}
	if err := librarymetrics.Register(r); err != nil {
		t.Fatal(err)
	}
	if _, err := access.NewMetrics(r); err != nil {
		t.Fatal(err)
	}
	r.MustRegister(serverTTL(func() time.Time { return time.Time{} }))
	slis, err := exposition.NewSLIs()
	if err != nil {
		t.Fatal(err)
	}
	slis.ObserveCheck("ping", true)
	r.MustRegister(slis.Collectors()...)
	golden.Lines(t, "testdata/metrics.golden", r.Text())
}

// Paths, methods, checks, tokens and names are a client's to make up; series are not.
func TestWhateverClientsAskForTheSeriesStayAsMany(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	ports := []string{"https://" + s.Addresses()["secure"], "http://" + s.Addresses()["read-only"], "http://" + s.Addresses()["healthz"]}
	client := httpClient(t)
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			for _, path := range []string{
				"/made-up-%d", "/pods/%d", "/metrics/m%d", "/healthz/check%d", "/stats/%d", "/logs/file%d", "/debug/pprof/p%d", "/containerLogs/ns/pod%d/c",
				"/run/ns/pod%d/c", "/exec/ns/pod%d/c?command=x&output=1", "/pods?q=%d", "/checkpoint/ns/pod%d/c", "/healthz?exclude=%d",
			} {
				method, token := []string{"GET", "POST", fmt.Sprintf("METHOD%d", i)}[i%3], []string{"admin-token", "", fmt.Sprintf("token-%d", i)}[i/3%3]
				ask(t, client, method, ports[i/9%3]+fmt.Sprintf(path, i), token)
			}
		}
	}
	count := func() int {
		slis := ask(t, client, "GET", ports[1]+"/metrics/slis", "").body
		return series(t, h) + len(slices.Collect(strings.Lines(slis)))
	}
	flood(0, 27) // each port with each method and token
	once := count()
	flood(27, 135)
	if many := count(); many != once {
		t.Errorf("%d series and lines after five times as many requests, %d before", many, once)
	}
	if once > 4000 {
		t.Errorf("%d series", once)
	}
}

// series counts what the gateway exports of its own.
func series(t *testing.T, h *house) (n int) {
	t.Helper()
	families, err := h.metrics.Gather()
	if err != nil || len(families) < 4 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n++
			if f.GetType() == dto.MetricType_HISTOGRAM {
				n += len(m.GetHistogram().GetBucket()) + 2
			}
		}
	}
	return n
}
