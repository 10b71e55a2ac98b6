package fakecri

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Direct returns a connection without gRPC's transport: messages are copied, handlers
// run in the caller's goroutine. Faults, SetDown and the caller's context act as they do
// over Dial; only the pauses of gRPC's own reconnecting are missing. It costs a tenth.
func (r *Runtime) Direct() grpc.ClientConnInterface {
	d := &direct{r: r, unary: map[string]unaryMethod{}, streams: map[string]streamMethod{}}
	d.add(&runtimeapi.RuntimeService_ServiceDesc, r.Runtime())
	d.add(&runtimeapi.ImageService_ServiceDesc, r.Images())
	return d
}

type unaryMethod struct {
	handler grpc.MethodHandler
	impl    any
}

type streamMethod struct {
	handler grpc.StreamHandler
	impl    any
}

type direct struct {
	r       *Runtime
	unary   map[string]unaryMethod
	streams map[string]streamMethod
}

func (d *direct) add(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		d.unary["/"+desc.ServiceName+"/"+m.MethodName] = unaryMethod{m.Handler, impl}
	}
	for _, s := range desc.Streams {
		d.streams["/"+desc.ServiceName+"/"+s.StreamName] = streamMethod{s.Handler, impl}
	}
}

// errCut and errRefused are what a client sees when the runtime's process goes away or is
// not there, in gRPC's words.
var (
	errCut     = errors.New("error reading from server: EOF")
	errRefused = errors.New("connection error: desc = \"transport: Error while dialing: connection refused\"")
)

// enter joins the runtime's process of this moment: ctx ends with it. done must be called.
func (d *direct) enter(ctx context.Context) (_ context.Context, done func(), err error) {
	base, leave := d.r.serving.join()
	if base == nil {
		return nil, nil, status.Error(codes.Unavailable, errRefused.Error())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(base, func() { cancel(errCut) })
	return ctx, func() {
		unhook()
		cancel(nil)
		leave()
	}, nil
}

// outcome is an error as the client gets it.
func outcome(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errCut):
		return status.Error(codes.Unavailable, errCut.Error())
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.FromContextError(err).Err()
}

// Invoke implements grpc.ClientConnInterface.
func (d *direct) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := d.unary[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	ctx, done, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	decode := func(into any) error {
		proto.Merge(into.(proto.Message), args.(proto.Message))
		return nil
	}
	resp, err := m.handler(m.impl, ctx, decode, d.r.interceptUnary)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err() // the answer came too late
	}
	if err != nil {
		return outcome(ctx, err)
	}
	out := reply.(proto.Message)
	proto.Reset(out)
	proto.Merge(out, resp.(proto.Message))
	return nil
}

// NewStream implements grpc.ClientConnInterface, for streams of the server.
func (d *direct) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m, ok := d.streams[method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	ctx, done, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	s := &directStream{ctx: ctx, request: make(chan proto.Message, 1), responses: make(chan proto.Message), ended: make(chan struct{})}
	go func() {
		defer done()
		defer close(s.ended)
		info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
		s.err = outcome(ctx, d.r.interceptStream(m.impl, serverEnd{s}, info, m.handler))
	}()
	return s, nil
}

// directStream is the client's end.
type directStream struct {
	ctx       context.Context
	request   chan proto.Message
	responses chan proto.Message
	ended     chan struct{} // closed when err is set
	err       error
	once      sync.Once
}

func (s *directStream) Header() (metadata.MD, error) { return nil, nil }
func (s *directStream) Trailer() metadata.MD         { return nil }
func (s *directStream) CloseSend() error             { return nil }
func (s *directStream) Context() context.Context     { return s.ctx }

func (s *directStream) SendMsg(m any) error {
	s.once.Do(func() { s.request <- proto.Clone(m.(proto.Message)) })
	return nil
}

func (s *directStream) RecvMsg(m any) error {
	select {
	case resp := <-s.responses:
		out := m.(proto.Message)
		proto.Reset(out)
		proto.Merge(out, resp)
		return nil
	case <-s.ended:
		if s.err == nil {
			return io.EOF
		}
		return s.err
	}
}

// serverEnd is the handler's end.
type serverEnd struct{ *directStream }

func (s serverEnd) SetHeader(metadata.MD) error  { return nil }
func (s serverEnd) SendHeader(metadata.MD) error { return nil }
func (s serverEnd) SetTrailer(metadata.MD)       {}

func (s serverEnd) SendMsg(m any) error {
	select {
	case s.responses <- m.(proto.Message):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s serverEnd) RecvMsg(m any) error {
	select {
	case req := <-s.request:
		proto.Merge(m.(proto.Message), req)
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// methodName is the last part of a full method name.
func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }
