// Package trace sends the steps of pods' timelines as OpenTelemetry spans. All
// that is done for a pod is one trace, whose id follows from the pod's UID, so
// that a restart of podsync goes on with it and sampling takes whole pods. It
// must never make a pod wait: what the collector does not take is dropped.
package trace

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/timeline"
)

const (
	// defaultEndpoint is where a collector listens that nobody configured.
	// Source: TracingConfiguration, KEP-647.
	defaultEndpoint = "localhost:4317"
	// flushWithin bounds the last export of a process that ends.
	flushWithin = 2 * time.Second
	million     = 1_000_000
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
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

var _ timeline.Tracer = (*Tracer)(nil)

// New returns a Tracer. It connects when the first spans are sent; ctx bounds
// nothing but this call.
func New(ctx context.Context, cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(cfg.Endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("prepare to send traces to %s: %w: check tracing.endpoint in the configuration", cfg.Endpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(float64(cfg.SamplingRatePerMillion)/million)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "polylet-podsync"), attribute.String("k8s.node.name", cfg.NodeName),
		)),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("polylet.podsync")}, nil
}

// Run sends what is left when ctx is done.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	_ = t.provider.Shutdown(last) // a collector that is away gets nothing
	return nil
}

// Begin implements timeline.Tracer.
func (t *Tracer) Begin(pod timeline.Pod, parent timeline.Span, what, object, detail string, at time.Time) timeline.Span {
	above := root(pod.UID)
	if p, ok := parent.(span); ok {
		above = p.SpanContext()
	}
	attributes := []attribute.KeyValue{
		attribute.String("k8s.pod.uid", string(pod.UID)), attribute.String("k8s.namespace.name", pod.Namespace), attribute.String("k8s.pod.name", pod.Name),
	}
	if object != "" {
		attributes = append(attributes, attribute.String("polylet.object", object))
	}
	if detail != "" {
		attributes = append(attributes, attribute.String("polylet.detail", detail))
	}
	_, s := t.tracer.Start(oteltrace.ContextWithSpanContext(context.Background(), above), what,
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
	if err != nil {
		s.SetStatus(codes.Error, err.Error())
	}
	s.Span.End(oteltrace.WithTimestamp(at))
}
