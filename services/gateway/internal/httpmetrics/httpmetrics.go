// Package httpmetrics counts what comes in over HTTP, in the kubelet's series. It
// must never look at more than a request's method and path.
package httpmetrics

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Meter holds the series. Safe for concurrent use; see New.
type Meter struct {
	total      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inflight   *prometheus.GaugeVec
	websockets *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	sessions   atomic.Int32
}

// New registers the series on r.
func New(r prometheus.Registerer) (*Meter, error) {
	labels := []string{"long_running", "method", "path", "server_type"}
	m := &Meter{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Number of the http requests received since the server started",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration in seconds to serve http requests",
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Number of the inflight http requests",
		}, labels),
		websockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total", Help: "Number of WebSocket streaming requests that were translated or tunnelled",
		}, []string{"subresource"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "polylet_gateway_connections_dropped_total", Help: "Number of connections closed because too many were open",
		}, []string{"listener"}),
	}
	return m, errors.Join(r.Register(m.dropped), r.Register(m.total), r.Register(m.duration), r.Register(m.inflight), r.Register(m.websockets))
}

// Count returns a handler that counts and serves next. secured says whether the
// port asks who calls.
func (m *Meter) Count(secured bool, next http.Handler) http.Handler {
	serverType := "readonly"
	if secured {
		serverType = "readwrite"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := bucket(r.URL.Path)
		values := []string{strconv.FormatBool(longRunning(path)), method(r.Method), path, serverType}
		m.total.WithLabelValues(values...).Inc()
		open := m.inflight.WithLabelValues(values...)
		open.Inc()
		start := time.Now()
		defer func() {
			open.Dec()
			m.duration.WithLabelValues(values...).Observe(time.Since(start).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// Dropped counts connections of a port that were closed for want of a place.
func (m *Meter) Dropped(listener string) func() { return m.dropped.WithLabelValues(listener).Inc }

// Begin counts a streaming session until end is called.
func (m *Meter) Begin() (end func()) {
	m.sessions.Add(1)
	return func() { m.sessions.Add(-1) }
}

// Sessions is how many streaming sessions are open now.
func (m *Meter) Sessions() int32 { return m.sessions.Load() }

// Translated counts a WebSocket that was translated or tunnelled.
func (m *Meter) Translated(subresource string) { m.websockets.WithLabelValues(subresource).Inc() }

// bucket is the first segment of a path, or metrics with its second; paths
// that nobody serves share one, so that callers cannot make series.
func bucket(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "metrics" && rest != "" {
		second, _, _ := strings.Cut(rest, "/")
		first += "/" + second
	}
	if slices.Contains([]string{
		"attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "flagz", "healthz", "logs", "metrics",
		"metrics/cadvisor", "metrics/probes", "metrics/resource", "metrics/slis", "pods", "portForward", "run", "runningpods",
		"spec", "stats", "statusz",
	}, first) {
		return first
	}
	return "other"
}

func longRunning(bucket string) bool {
	return bucket == "exec" || bucket == "attach" || bucket == "debug"
}

func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return m
	default:
		return "other"
	}
}
