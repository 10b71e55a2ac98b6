package fakecri

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serving is the gRPC side: one server at a time, on an in-memory listener and on the
// Unix sockets asked for. Its own lock, so that stopping never holds the state's.
type serving struct {
	r      *Runtime
	mu     sync.Mutex
	server *grpc.Server      // nil until somebody dials or listens
	buffer *bufconn.Listener // nil until somebody dials
	paths  []string
	done   sync.WaitGroup
	// base is the life of the runtime's process, for Direct; nil while down.
	base   context.Context
	end    context.CancelFunc
	joined sync.WaitGroup
}

// join takes part in the runtime's process; nil while there is none.
func (s *serving) join() (base context.Context, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		return nil, nil
	}
	s.joined.Add(1)
	return s.base, s.joined.Done
}

func (s *serving) start(r *Runtime) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(r)
}

func (s *serving) startLocked(r *Runtime) {
	s.r = r
	s.base, s.end = context.WithCancel(context.Background())
}

// serveLocked serves on a listener.
func (s *serving) serveLocked(l net.Listener) {
	if s.server == nil {
		s.server = grpc.NewServer(s.r.serverOptions()...)
		runtimeapi.RegisterRuntimeServiceServer(s.server, s.r.Runtime())
		runtimeapi.RegisterImageServiceServer(s.server, s.r.Images())
	}
	server := s.server
	s.done.Go(func() { _ = server.Serve(l) })
}

func (s *serving) stop() {
	s.mu.Lock()
	server := s.server
	s.server, s.buffer = nil, nil
	if s.base != nil {
		s.end()
		s.base = nil
	}
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	s.done.Wait()
	s.joined.Wait()
}

func (s *serving) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	if s.base == nil {
		s.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
	}
	if s.buffer == nil {
		s.buffer = newBuffer()
		s.serveLocked(s.buffer)
	}
	buffer := s.buffer
	s.mu.Unlock()
	return buffer.DialContext(ctx)
}

// Dial returns a connection over memory. It connects when first used, and reconnects
// by itself after SetDown.
func (r *Runtime) Dial(_ context.Context, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.serving.dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///fakecri", opts...)
	if err != nil {
		return nil, fmt.Errorf("dial the fake runtime: %w", err)
	}
	return conn, nil
}

// Dialer is for code that takes a dial function: it opens one in-memory connection.
func (r *Runtime) Dialer() func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) { return r.serving.dial(ctx) }
}

// ListenUnix serves on a real Unix socket as well, which Close removes. Not for use in a
// synctest bubble: real I/O stops virtual time.
func (r *Runtime) ListenUnix(socket string) error {
	r.serving.mu.Lock()
	defer r.serving.mu.Unlock()
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen on %s for the fake runtime: %w", socket, err)
	}
	r.serving.paths = append(r.serving.paths, socket)
	r.serving.serveLocked(l)
	return nil
}

// SetDown(true) is the runtime's own process going away: connections are cut, dials are
// refused, events not yet delivered are lost, while the containers run on. SetDown(false)
// brings it back with the state as it is by then.
func (r *Runtime) SetDown(down bool) {
	r.mu.Lock()
	same := r.down == down || r.isClosed
	r.down = down
	r.events = eventQueue{}
	r.mu.Unlock()
	if same {
		return
	}
	if down {
		r.serving.stop()
		return
	}
	r.serving.mu.Lock()
	defer r.serving.mu.Unlock()
	r.serving.startLocked(r)
	for _, p := range r.serving.paths {
		if l, err := net.Listen("unix", p); err == nil {
			r.serving.serveLocked(l)
		}
	}
}

func (r *Runtime) fault(ctx context.Context, method string, req any) Fault {
	if r.cfg.Faults == nil {
		return Fault{}
	}
	return r.cfg.Faults(ctx, method, req)
}

func (r *Runtime) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := methodName(info.FullMethod)
	began := time.Now()
	r.count(method)
	resp, err := r.faulty(ctx, method, req, handler)
	if r.cfg.Forgetful {
		return resp, err
	}
	r.mu.Lock()
	r.callLog = append(r.callLog, Call{At: began, Took: time.Since(began), Method: method, Subject: Subject(req), Err: err})
	r.mu.Unlock()
	return resp, err
}

func (r *Runtime) faulty(ctx context.Context, method string, req any, handler grpc.UnaryHandler) (any, error) {
	f := r.fault(ctx, method, req)
	if err := r.wait(ctx, f.Delay); err != nil {
		return nil, err
	}
	if !f.After && (f.Hang || f.Err != nil) {
		return nil, r.fail(ctx, f)
	}
	resp, err := handler(ctx, req)
	if f.After {
		return nil, r.fail(ctx, f)
	}
	return resp, err
}

// fail ends a call as the fault says.
func (r *Runtime) fail(ctx context.Context, f Fault) error {
	if f.Hang {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-r.closed:
		}
	}
	if f.Err != nil {
		return toStatus(f.Err)
	}
	return status.Error(codes.Unavailable, "fault injected: the response was lost")
}

func (r *Runtime) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := methodName(info.FullMethod)
	r.count(method)
	f := r.fault(stream.Context(), method, nil)
	if err := r.wait(stream.Context(), f.Delay); err != nil {
		return err
	}
	if f.Hang || f.Err != nil {
		return r.fail(stream.Context(), f)
	}
	return handler(srv, stream)
}

func (r *Runtime) count(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[method]++
}

// toStatus keeps the code of an error that has one; others are Unknown, which is what
// containerd's untyped errors become.
func toStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}
