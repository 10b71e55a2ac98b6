package httpmetrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func newMeter(t *testing.T) (*Meter, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func ask(h http.Handler, method, path string) {
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, http.NoBody))
}

func TestARequestIsCountedUnderItsPathsFirstSegment(t *testing.T) {
	for path, want := range map[string]string{
		"/pods":                       "pods",
		"/pods/":                      "pods",
		"/exec/ns/pod/container":      "exec",
		"/metrics":                    "metrics",
		"/metrics/cadvisor":           "metrics/cadvisor",
		"/metrics/cadvisor/more":      "metrics/cadvisor",
		"/metrics/invented":           "other",
		"/containerLogs/ns/pod/c":     "containerLogs",
		"/":                           "other",
		"/podsandmore":                "other",
		"/" + strings.Repeat("x", 99): "other",
	} {
		if got := bucket(path); got != want {
			t.Errorf("%s is counted under %s, want %s", path, got, want)
		}
	}
}

func TestCallersCannotMakeSeries(t *testing.T) {
	m, _ := newMeter(t)
	h := m.Count(true, http.NotFoundHandler())
	for i := range 100 {
		ask(h, "GET", fmt.Sprintf("/invented%d", i))
		ask(h, fmt.Sprintf("M%d", i), "/pods")
	}
	if n := testutil.CollectAndCount(m.total); n != 2 {
		t.Errorf("%d series of requests", n)
	}
	if got := testutil.ToFloat64(m.total.WithLabelValues("false", "GET", "other", "readwrite")); got != 100 {
		t.Errorf("%g requests of paths that nobody serves", got)
	}
}

func TestARequestIsInFlightUntilItsHandlerEndsHoweverItEnds(t *testing.T) {
	m, _ := newMeter(t)
	labels := []string{"true", "POST", "exec", "readonly"}
	during := 0.0
	h := m.Count(false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		during = testutil.ToFloat64(m.inflight.WithLabelValues(labels...))
		panic(http.ErrAbortHandler)
	}))
	func() {
		defer func() { _ = recover() }()
		ask(h, "POST", "/exec/ns/pod/c")
	}()
	if after := testutil.ToFloat64(m.inflight.WithLabelValues(labels...)); during != 1 || after != 0 {
		t.Errorf("%g in flight while it is served, %g after", during, after)
	}
	if n := testutil.CollectAndCount(m.duration); n != 1 {
		t.Errorf("%d durations of a request that broke off", n)
	}
}

func TestSessionsAreThoseThatHaveNotEnded(t *testing.T) {
	m, _ := newMeter(t)
	first, second := m.Begin(), m.Begin()
	first()
	if n := m.Sessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	second()
	if n := m.Sessions(); n != 0 {
		t.Errorf("%d sessions, want none", n)
	}
}
