package trace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Call begins a span for a call that is made within a pod's action; nil for other calls.
// The call carries the span along, as the W3C's traceparent. It is for cri.Traced.
func Call(ctx context.Context, name string) (context.Context, *cri.Span) {
	ctx, s := timeline.Trace(ctx, name, "")
	if s == nil {
		return ctx, nil
	}
	header := propagation.MapCarrier{}
	if own, ok := s.(span); ok {
		propagation.TraceContext{}.Inject(oteltrace.ContextWithSpan(ctx, own.Span), header)
	}
	return ctx, &cri.Span{Header: header, End: func(err error) { s.End(time.Now(), err) }}
}
