// Package clientmetrics counts what client-go does, in the series that every
// Kubernetes component has: rest_client_* for requests to the apiserver and
// workqueue_* for its queues. It owns their names, labels and buckets, and puts
// them on the process's own registry. It must never change a request or a queue.
//
// component-base has the same for its global registry, which every process
// would link and fill at import.
package clientmetrics

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// Buckets of the histograms, in seconds, bytes and seconds.
// Source: https://kubernetes.io/docs/reference/instrumentation/metrics/
var (
	resolving = []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30}
	waiting   = []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}
	sizes     = []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	ages      = []float64{600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000}
	queueing  = []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10}
)

// Register puts the series on r and has client-go fill them. client-go counts
// into one place per process: of several calls only the first one's registry
// is filled.
func Register(r prometheus.Registerer) error {
	requests, rest := newRequests(), newTransports()
	errs := []error{RegisterQueues(r)}
	for _, c := range append(requests.collectors(), rest.collectors()...) {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	metrics.Register(metrics.RegisterOpts{
		RequestLatency: byVerb{requests.duration}, RateLimiterLatency: byVerb{requests.limited},
		ResolverLatency: resolver{requests.resolution}, RequestSize: size{requests.sent}, ResponseSize: size{requests.received},
		RequestResult: results{requests.total}, RequestRetry: retries{requests.retried},
		ClientCertExpiry: rest.ttl, ClientCertRotationAge: age{rest.age}, ExecPluginCalls: calls{rest.plugin},
		TransportCacheEntries: entries{rest.cached}, TransportCreateCalls: created{rest.created},
		TransportCertRotationGCCalls: ended{rest.rotations}, TransportCacheGCCalls: created{rest.dropped},
	})
	return nil
}

// requests are those to the apiserver.
type requests struct {
	duration, limited, resolution, sent, received *prometheus.HistogramVec
	total, retried                                *prometheus.CounterVec
}

func newRequests() *requests {
	return &requests{
		duration:   histogram("rest_client_request_duration_seconds", "Request latency in seconds, by verb and host.", waiting, "verb", "host"),
		limited:    histogram("rest_client_rate_limiter_duration_seconds", "Time that the client's own rate limit held a request up, by verb and host.", waiting, "verb", "host"),
		resolution: histogram("rest_client_dns_resolution_duration_seconds", "Time to resolve the apiserver's name, by host.", resolving, "host"),
		sent:       histogram("rest_client_request_size_bytes", "Size of requests, by verb and host.", sizes, "verb", "host"),
		received:   histogram("rest_client_response_size_bytes", "Size of responses, by verb and host.", sizes, "verb", "host"),
		total:      counter("rest_client_requests_total", "Number of requests, by status code, method and host.", "code", "method", "host"),
		retried:    counter("rest_client_request_retries_total", "Number of requests that were tried again, by status code, verb and host.", "code", "verb", "host"),
	}
}

func (r *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.duration, r.limited, r.resolution, r.sent, r.received, r.total, r.retried}
}

// transports are connections and the credentials on them.
type transports struct {
	ttl     *expiry
	age     prometheus.Histogram
	plugin  *prometheus.CounterVec
	cached  prometheus.Gauge
	created *prometheus.CounterVec
	// rotations and dropped count what is cleaned up after transports that are gone.
	rotations prometheus.Counter
	dropped   *prometheus.CounterVec
}

func newTransports() *transports {
	return &transports{
		ttl: &expiry{desc: prometheus.NewDesc("rest_client_exec_plugin_ttl_seconds",
			"Seconds until the first client certificate of an exec plugin ends; negative when it has, +Inf when there is none.", nil, nil)},
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rest_client_exec_plugin_certificate_rotation_age", Help: "Age in seconds of the certificates that an exec plugin replaced.", Buckets: ages,
		}),
		plugin: counter("rest_client_exec_plugin_call_total", "Number of calls of exec plugins, by exit code and status.", "code", "call_status"),
		cached: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rest_client_transport_cache_entries", Help: "Number of transports in client-go's cache.",
		}),
		created: counter("rest_client_transport_create_calls_total", "Number of transports that were asked for, by what the cache said.", "result"),
		rotations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rest_client_transport_cert_rotation_gc_calls_total", Help: "Number of times that following a client certificate ended with the transport that used it.",
		}),
		dropped: counter("rest_client_transport_cache_gc_calls_total", "Number of transports that nobody used any more, by what was done: deleted or skipped.", "result"),
	}
}

func (t *transports) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.ttl, t.age, t.plugin, t.cached, t.created, t.rotations, t.dropped}
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// CertificateTTL is a gauge of the seconds until a certificate ends, negative when
// it has; +Inf while notAfter gives the zero time, for there is none. It is asked
// with every scrape.
func CertificateTTL(name, help string, notAfter func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		end := notAfter()
		if end.IsZero() {
			return untilSeconds(nil)
		}
		return untilSeconds(&end)
	})
}

// The rest are client-go's interfaces on these series.

type byVerb struct{ *prometheus.HistogramVec }

func (m byVerb) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	m.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type resolver struct{ *prometheus.HistogramVec }

func (m resolver) Observe(_ context.Context, host string, took time.Duration) {
	m.WithLabelValues(host).Observe(took.Seconds())
}

type size struct{ *prometheus.HistogramVec }

func (m size) Observe(_ context.Context, verb, host string, bytes float64) {
	m.WithLabelValues(verb, host).Observe(bytes)
}

type results struct{ *prometheus.CounterVec }

func (m results) Increment(_ context.Context, code, method, host string) {
	m.WithLabelValues(code, method, host).Inc()
}

type retries struct{ *prometheus.CounterVec }

func (m retries) IncrementRetry(_ context.Context, code, verb, host string) {
	m.WithLabelValues(code, verb, host).Inc()
}

type age struct{ prometheus.Histogram }

func (m age) Observe(d time.Duration) { m.Histogram.Observe(d.Seconds()) }

type calls struct{ *prometheus.CounterVec }

func (m calls) Increment(code int, status string) {
	m.WithLabelValues(strconv.Itoa(code), status).Inc()
}

type entries struct{ prometheus.Gauge }

func (m entries) Observe(n int) { m.Set(float64(n)) }

type created struct{ *prometheus.CounterVec }

func (m created) Increment(result string) { m.WithLabelValues(result).Inc() }

// expiry shows how long a certificate is good for at the time of the scrape.
type expiry struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	at   *time.Time
}

func (e *expiry) Set(at *time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = at
}

func (e *expiry) Describe(ch chan<- *prometheus.Desc) { ch <- e.desc }

func (e *expiry) Collect(ch chan<- prometheus.Metric) {
	e.mu.Lock()
	at := e.at
	e.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, untilSeconds(at))
}

type ended struct{ prometheus.Counter }

func (m ended) Increment() { m.Inc() }
