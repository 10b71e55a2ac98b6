package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// traceContext carries a trace in the headers of the W3C's Trace Context.
type traceContext = propagation.TraceContext

// carrier is gRPC's metadata as headers.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	var out []string
	for key := range c {
		out = append(out, key)
	}
	return out
}

// traced says whether calls of a method are worth a span: what is asked to see
// whether a process lives is not.
func traced(method string) bool { return !strings.HasPrefix(method, "/grpc.") }

// Client makes a span of each unary call and sends the trace along. Streams,
// which last as long as the processes, get none. The nil Provider does nothing.
func (p *Provider) Client() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if p == nil || !traced(method) {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		ctx, span := p.tracer.Start(ctx, Text(strings.TrimPrefix(method, "/")), oteltrace.WithSpanKind(oteltrace.SpanKindClient))
		headers, _ := metadata.FromOutgoingContext(ctx)
		headers = headers.Copy()
		if headers == nil {
			headers = metadata.MD{}
		}
		traceContext{}.Inject(ctx, carrier(headers))
		err := invoke(metadata.NewOutgoingContext(ctx, headers), method, req, reply, conn, opts...)
		end(span, err)
		return err
	}
}

// Server makes a span of each unary call, in the caller's trace. The nil
// Provider does nothing.
func (p *Provider) Server() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if p == nil || !traced(info.FullMethod) {
			return handle(ctx, req)
		}
		headers, _ := metadata.FromIncomingContext(ctx)
		ctx = traceContext{}.Extract(ctx, carrier(headers))
		ctx, span := p.tracer.Start(ctx, Text(strings.TrimPrefix(info.FullMethod, "/")), oteltrace.WithSpanKind(oteltrace.SpanKindServer))
		resp, err := handle(ctx, req)
		end(span, err)
		return resp, err
	}
}

// Handler makes a span of each request, in the client's trace. The span of a
// stream lasts as long as the stream. The nil Provider changes nothing.
func (p *Provider) Handler(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := traceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := p.tracer.Start(ctx, Text("HTTP "+r.Method), oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(
			String("http.request.method", r.Method), String("url.path", r.URL.Path)))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Transport makes a span of each request that is sent, until its answer begins.
// The nil Provider changes nothing.
func (p *Provider) Transport(next http.RoundTripper) http.RoundTripper {
	if p == nil {
		return next
	}
	return &transport{p, next}
}

type transport struct {
	provider *Provider
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.provider.tracer.Start(r.Context(), Text("HTTP "+r.Method), oteltrace.WithSpanKind(oteltrace.SpanKindClient), oteltrace.WithAttributes(
		String("http.request.method", r.Method), String("url.path", r.URL.Path), String("server.address", r.URL.Host)))
	r = r.Clone(ctx)
	traceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	}
	end(span, err)
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
