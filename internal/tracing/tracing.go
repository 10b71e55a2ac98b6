// Package tracing sends OpenTelemetry spans of the calls between the processes,
// of what the gateway serves and of requests to the apiserver, when the
// configuration has tracing. It owns the provider, its sampling and the headers
// by which a trace goes on in another process; it must never hold up or fail
// what it traces: what the collector does not take is dropped.
package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

const (
	// defaultEndpoint is where a collector listens that nobody configured.
	// Source: TracingConfiguration, KEP-647.
	defaultEndpoint = "localhost:4317"
	// flushWithin bounds the last export of a process that ends.
	flushWithin = 2 * time.Second
	million     = 1_000_000
)

// Config is KubeletConfiguration's tracing, and who sends.
type Config struct {
	// Endpoint of the collector, host:port, OTLP over gRPC without TLS; empty
	// is localhost:4317.
	Endpoint string
	// SamplingRatePerMillion is how many of a million traces are sent. Traces
	// that another process began are sent if that one sends them.
	SamplingRatePerMillion int32
	// Service names the process ("gateway"); NodeName goes with every span.
	Service, NodeName string
	// Sampler replaces the one that follows from the rate; nil does not.
	Sampler sdktrace.Sampler
}

// Provider makes and sends spans. The nil pointer makes none. Safe for
// concurrent use.
type Provider struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

// New returns a Provider. It connects when the first spans are sent; ctx bounds
// nothing but this call.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	if cfg.Sampler == nil {
		cfg.Sampler = sdktrace.ParentBased(Ratio(cfg.SamplingRatePerMillion))
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(cfg.Endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("prepare to send traces to %s: %w: check tracing.endpoint in the configuration", cfg.Endpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithSampler(cfg.Sampler),
		sdktrace.WithResource(resource.NewSchemaless(
			String("service.name", "polylet-"+cfg.Service), String("k8s.node.name", cfg.NodeName),
		)),
	)
	return &Provider{provider: provider, tracer: provider.Tracer("polylet." + cfg.Service)}, nil
}

// Ratio takes so many of a million traces, by their ids.
func Ratio(perMillion int32) sdktrace.Sampler {
	return sdktrace.TraceIDRatioBased(float64(perMillion) / million)
}

// Tracer makes spans; those of the nil Provider go nowhere.
func (p *Provider) Tracer() oteltrace.Tracer {
	if p == nil {
		return noop.NewTracerProvider().Tracer("")
	}
	return p.tracer
}

// Run sends what is left when ctx is done. It returns nil.
func (p *Provider) Run(ctx context.Context) error {
	<-ctx.Done()
	if p == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	_ = p.provider.Shutdown(last) // a collector that is away gets nothing
	return nil
}

// end ends a span, with an error if there is one.
func end(span oteltrace.Span, err error) {
	Fail(span, err)
	span.End()
}
