package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// WaitForReady returns conn such that a call which finds its server away is tried at once,
// whatever pause the connection is in, and waits up to timeout for it: for calls that a
// person waits for, while the server is being started again. A call that has a connection
// loses nothing, and one whose server stays away fails as it would have. A conn that
// cannot say whether it is connected (a double of a test) is returned as it is.
func WaitForReady(conn grpc.ClientConnInterface, timeout time.Duration) grpc.ClientConnInterface {
	connected, ok := conn.(connection)
	if !ok {
		return conn
	}
	return waiting{connection: connected, timeout: timeout}
}

// connection is what *grpc.ClientConn has.
type connection interface {
	grpc.ClientConnInterface
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
	Connect()
	ResetConnectBackoff()
}

type waiting struct {
	connection
	timeout time.Duration
}

// Invoke implements grpc.ClientConnInterface.
func (w waiting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	w.await(ctx)
	return w.connection.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (w waiting) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w.await(ctx)
	return w.connection.NewStream(ctx, desc, method, opts...)
}

// await returns when there is a connection, or nobody waits for one any more.
func (w waiting) await(ctx context.Context) {
	state := w.GetState()
	if settled(state) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	w.ResetConnectBackoff()
	for !settled(state) {
		if state == connectivity.Idle {
			w.Connect()
		}
		if !w.WaitForStateChange(ctx, state) {
			return
		}
		state = w.GetState()
	}
}

func settled(s connectivity.State) bool {
	return s == connectivity.Ready || s == connectivity.Shutdown
}
