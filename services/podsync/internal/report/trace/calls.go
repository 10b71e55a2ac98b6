package trace

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Calls returns conn with a span for each unary call that is made within a
// pod's action, named as gRPC names it, e.g.
// runtime.v1.RuntimeService/RunPodSandbox. The call carries the span along, as
// the W3C's traceparent, for a runtime that traces too. Other calls pass as
// they are.
func Calls(conn grpc.ClientConnInterface) grpc.ClientConnInterface { return calls{conn} }

type calls struct{ grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (c calls) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, s := timeline.Trace(ctx, strings.TrimPrefix(method, "/"), "")
	if s == nil {
		return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	}
	err := c.ClientConnInterface.Invoke(carry(ctx, s), method, args, reply, opts...)
	s.End(time.Now(), err)
	return err
}

// carry puts a span into the metadata of the calls that ctx is for.
func carry(ctx context.Context, s timeline.Span) context.Context {
	own, ok := s.(span)
	if !ok {
		return ctx
	}
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(oteltrace.ContextWithSpan(ctx, own.Span), header)
	for key, value := range header {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	return ctx
}
