package exposition

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/polylet/polylet/internal/rpcerr"
)

func source(t *testing.T, service string, values map[string]float64) Source {
	t.Helper()
	r := prometheus.NewRegistry()
	for name, value := range values {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "h"})
		g.Set(value)
		r.MustRegister(g)
	}
	return Source{Service: service, Gather: func(context.Context) ([]*dto.MetricFamily, error) { return r.Gather() }}
}

func away(service string) Source {
	return Source{Service: service, Gather: func(context.Context) ([]*dto.MetricFamily, error) {
		return nil, fmt.Errorf("%w: no socket", rpcerr.ErrUnavailable)
	}}
}

func get(h http.Handler, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAMergedScrapeHasEachFamilyOnceAndIsWellFormed(t *testing.T) {
	w := get(Merged(
		source(t, "podsync", map[string]float64{"kubelet_running_pods": 3, "process_cpu_seconds_total": 1, "odd": 1}),
		source(t, "stats", map[string]float64{"process_cpu_seconds_total": 2, "odd": 2}),
		away("probes"),
	))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	body := w.Body.String()
	for _, want := range []string{
		"kubelet_running_pods 3\n",
		`process_cpu_seconds_total{service="podsync"} 1`, `process_cpu_seconds_total{service="stats"} 2`,
		`odd{service="podsync"} 1`, `odd{service="stats"} 2`,
		`polylet_up{service="podsync"} 1`, `polylet_up{service="stats"} 1`, `polylet_up{service="probes"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
	for _, name := range []string{"odd", "process_cpu_seconds_total", "polylet_up"} {
		if n := strings.Count(body, "# TYPE "+name+" "); n != 1 {
			t.Errorf("family %s stands there %d times", name, n)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(body)); err != nil {
		t.Errorf("Prometheus cannot read it: %v", err)
	}
}

func TestOneKindWinsWhenTwoProcessesDisagree(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "odd", Help: "h"}))
	counter := Source{Service: "stats", Gather: func(context.Context) ([]*dto.MetricFamily, error) { return r.Gather() }}
	body := get(Merged(source(t, "podsync", map[string]float64{"odd": 1}), counter)).Body.String()
	if !strings.Contains(body, "# TYPE odd gauge") || strings.Contains(body, "# TYPE odd counter") || strings.Contains(body, `odd{service="stats"}`) {
		t.Errorf("merged to\n%s", body)
	}
}

func TestOpenMetricsAndGzipAreNegotiated(t *testing.T) {
	w := get(Merged(source(t, "podsync", map[string]float64{"a": 1})),
		"Accept", "application/openmetrics-text; version=1.0.0", "Accept-Encoding", "deflate, gzip;q=0.5")
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/openmetrics-text") {
		t.Errorf("content type %q", got)
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil || !strings.HasSuffix(string(body), "# EOF\n") {
		t.Errorf("%v: %q", err, body)
	}
	if w := get(Merged(), "Accept-Encoding", "gzip;q=0"); w.Header().Get("Content-Encoding") != "" {
		t.Error("gzip was sent to a client that refuses it")
	}
}

func TestOneProcessAwayFailsItsOwnDocumentOnly(t *testing.T) {
	w := get(One(away("probes")))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "probes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(One(source(t, "probes", map[string]float64{"b": 1, "a": 1}))); w.Code != 200 || strings.Index(w.Body.String(), "a 1") > strings.Index(w.Body.String(), "b 1") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTextIsPassedThroughInPieces(t *testing.T) {
	pieces := []string{"a 1\n", "b 2\n"}
	open := func(_ context.Context, accept string) (func() (string, []byte, error), error) {
		i := 0
		return func() (string, []byte, error) {
			if i == len(pieces) {
				return "", nil, io.EOF
			}
			i++
			return "text/plain; accept=" + accept, []byte(pieces[i-1]), nil
		}, nil
	}
	w := get(Text("stats", open), "Accept", "x")
	if w.Body.String() != "a 1\nb 2\n" || w.Header().Get("Content-Type") != "text/plain; accept=x" {
		t.Errorf("%q %q", w.Header(), w.Body)
	}
	failing := func(context.Context, string) (func() (string, []byte, error), error) {
		return func() (string, []byte, error) { return "", nil, fmt.Errorf("%w: no", rpcerr.ErrUnavailable) }, nil
	}
	if w := get(Text("stats", failing)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	cut := func(context.Context, string) (func() (string, []byte, error), error) {
		n := 0
		return func() (string, []byte, error) {
			if n++; n == 1 {
				return "", []byte("a"), nil
			}
			return "", nil, errors.New("cut")
		}, nil
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("a document that is not whole looks whole")
		}
	}()
	get(Text("stats", cut))
}

// writes counts what reaches the client.
type writes struct {
	*httptest.ResponseRecorder
	n int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.ResponseRecorder.Write(p)
}

func TestADocumentLeavesInLargePieces(t *testing.T) {
	values := map[string]float64{}
	for i := range 4000 {
		values[fmt.Sprintf("metric_%d_of_many", i)] = float64(i) / 7
	}
	for _, encoding := range []string{"gzip", "identity"} {
		h := Merged(source(t, "podsync", values))
		for range 2 { // the second time with what is kept
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept-Encoding", encoding)
			w := &writes{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, r)
			size, most := w.Body.Len(), w.Body.Len()/frameBytes+1
			if size < frameBytes || w.n > most {
				t.Errorf("%s: %d bytes in %d writes, want at most %d", encoding, size, w.n, most)
			}
			var body io.Reader = w.Body
			if encoding == "gzip" {
				var err error
				if body, err = gzip.NewReader(w.Body); err != nil {
					t.Fatal(err)
				}
			}
			text, err := io.ReadAll(body)
			if err != nil || !strings.Contains(string(text), "metric_3999_of_many ") || !strings.HasSuffix(string(text), "\n") {
				t.Errorf("%s: %d bytes of text, %v", encoding, len(text), err)
			}
		}
	}
}
