// Package grpctest serves a gRPC server over memory in a test, so that it works in a
// testing/synctest bubble. It owns the listener and the server's goroutines, nothing
// else, and must never open a real socket.
package grpctest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

const bufferSize = 1 << 20

// Server is a gRPC server over memory that can be cut off and come back.
type Server struct {
	register func(*grpc.Server)
	opts     []grpc.ServerOption
	done     sync.WaitGroup

	mu     sync.Mutex
	server *grpc.Server
	buffer *bufconn.Listener // nil while down
}

// New serves what register adds. Inside a synctest bubble, call it inside the bubble.
// Close ends it.
func New(register func(*grpc.Server), opts ...grpc.ServerOption) *Server {
	s := &Server{register: register, opts: append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, opts...)}
	s.Up()
	return s
}

// Up serves again after Down. It does nothing while the server is up.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffer != nil {
		return
	}
	server, buffer := grpc.NewServer(s.opts...), bufconn.Listen(bufferSize)
	s.register(server)
	s.server, s.buffer = server, buffer
	s.done.Go(func() { _ = server.Serve(buffer) })
}

// Down cuts every connection and refuses new ones, as when the process dies. It returns
// when the handlers have ended.
func (s *Server) Down() {
	s.mu.Lock()
	server := s.server
	s.server, s.buffer = nil, nil
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	s.done.Wait()
}

// Cut cuts every connection; clients can come back at once.
func (s *Server) Cut() {
	s.Down()
	s.Up()
}

// Close ends the server for good.
func (s *Server) Close() { s.Down() }

// Dialer opens a connection, for code that takes a dial function.
func (s *Server) Dialer() func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		s.mu.Lock()
		buffer := s.buffer
		s.mu.Unlock()
		if buffer == nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
		}
		return buffer.DialContext(ctx)
	}
}

// Dial returns a client connection, without transport security unless opts say so.
func (s *Server) Dial(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append([]grpc.DialOption{
		grpc.WithContextDialer(s.Dialer()), grpc.WithTransportCredentials(insecure.NewCredentials()),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///grpctest", opts...)
	if err != nil {
		return nil, fmt.Errorf("dial the test's server: %w", err)
	}
	return conn, nil
}

// Serve serves what register adds until the test ends, and returns a connection to it.
// In a synctest bubble, pass the bubble's own t.
func Serve(t testing.TB, register func(*grpc.Server), opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	s := New(register, opts...)
	conn, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Close()
	})
	return conn
}
