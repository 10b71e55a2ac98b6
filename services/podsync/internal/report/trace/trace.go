// Package trace sends the steps of pods' timelines as OpenTelemetry spans. All
// that is done for a pod is one trace, whose id follows from the pod's UID, so
// that a restart of podsync goes on with it and sampling takes whole pods. It
// must never make a pod wait: what the collector does not take is dropped.
package trace

import (
	"context"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/tracing"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Config is KubeletConfiguration's tracing.
type Config struct {
	// Endpoint of the collector, host:port, OTLP over gRPC without TLS; empty
	// is localhost:4317.
	Endpoint string
	// SamplingRatePerMillion is how many pods of a million are traced.
	SamplingRatePerMillion int32
	// NodeName goes with every span.
	NodeName string
}

// Tracer is a timeline.Tracer. Safe for concurrent use.
type Tracer struct {
	*tracing.Provider
	tracer oteltrace.Tracer
}

var _ timeline.Tracer = (*Tracer)(nil)

// New returns a Tracer. It connects when the first spans are sent; ctx bounds
// nothing but this call. Run sends what is left when its context is done.
func New(ctx context.Context, cfg Config) (*Tracer, error) {
	provider, err := tracing.New(ctx, tracing.Config{
		Endpoint: cfg.Endpoint, Service: service.Podsync, NodeName: cfg.NodeName, Sampler: tracing.Ratio(cfg.SamplingRatePerMillion),
	})
	if err != nil {
		return nil, err
	}
	return &Tracer{Provider: provider, tracer: provider.Tracer()}, nil
}

// Begin implements timeline.Tracer.
func (t *Tracer) Begin(pod timeline.Pod, parent timeline.Span, what, object, detail string, at time.Time) timeline.Span {
	above := root(pod.UID)
	if p, ok := parent.(span); ok {
		above = p.SpanContext()
	}
	attributes := []attribute.KeyValue{
		tracing.String("k8s.pod.uid", string(pod.UID)), tracing.String("k8s.namespace.name", pod.Namespace), tracing.String("k8s.pod.name", pod.Name),
	}
	if object != "" {
		attributes = append(attributes, tracing.String("polylet.object", object))
	}
	if detail != "" {
		attributes = append(attributes, tracing.String("polylet.detail", detail))
	}
	_, s := t.tracer.Start(oteltrace.ContextWithSpanContext(context.Background(), above), tracing.Text(what),
		oteltrace.WithTimestamp(at), oteltrace.WithAttributes(attributes...))
	return span{s}
}

// root is the span that a pod's actions hang on. It is never sent: a pod has no
// beginning and end that this process is sure to see.
func root(uid types.UID) oteltrace.SpanContext {
	sum := sha256.Sum256([]byte(uid))
	return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID(sum[:16]), SpanID: oteltrace.SpanID(sum[16:24]), TraceFlags: oteltrace.FlagsSampled, Remote: true,
	})
}

type span struct{ oteltrace.Span }

// End implements timeline.Span.
func (s span) End(at time.Time, err error) {
	tracing.Fail(s.Span, err)
	s.Span.End(oteltrace.WithTimestamp(at))
}
