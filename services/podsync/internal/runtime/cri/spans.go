package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Span is what is traced of one call. Header goes with the call, for a runtime that traces
// too; End is called with what came of it.
type Span struct {
	Header map[string]string
	End    func(error)
}

// Traced returns conn with a span for each unary call for which begin has one. It is given
// the call's name as gRPC has it, e.g. runtime.v1.RuntimeService/RunPodSandbox. Where it
// has none, it returns nil, and the call passes as it is.
func Traced(conn grpc.ClientConnInterface, begin func(ctx context.Context, call string) (context.Context, *Span)) grpc.ClientConnInterface {
	return traced{conn, begin}
}

type traced struct {
	grpc.ClientConnInterface
	begin func(ctx context.Context, call string) (context.Context, *Span)
}

// Invoke implements grpc.ClientConnInterface.
func (t traced) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	in, s := t.begin(ctx, strings.TrimPrefix(method, "/"))
	if s == nil {
		return t.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	}
	for key, value := range s.Header {
		in = metadata.AppendToOutgoingContext(in, key, value)
	}
	err := t.ClientConnInterface.Invoke(in, method, args, reply, opts...)
	s.End(err)
	return err
}
