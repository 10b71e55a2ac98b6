package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Patient returns conn such that a call which finds its server away is tried at once,
// whatever pause the connection is in, and waits up to patience for it: for calls that a
// person waits for, while the server is being started again. A call that has a connection
// loses nothing, and one whose server stays away fails as it would have. A conn that
// cannot say whether it is connected (a double of a test) is returned as it is.
func Patient(conn grpc.ClientConnInterface, patience time.Duration) grpc.ClientConnInterface {
	connected, ok := conn.(connection)
	if !ok {
		return conn
	}
	return patient{connection: connected, patience: patience}
}

// connection is what *grpc.ClientConn has.
type connection interface {
	grpc.ClientConnInterface
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
	Connect()
	ResetConnectBackoff()
}

type patient struct {
	connection
	patience time.Duration
}

// Invoke implements grpc.ClientConnInterface.
func (p patient) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	p.await(ctx)
	return p.connection.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (p patient) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p.await(ctx)
	return p.connection.NewStream(ctx, desc, method, opts...)
}

// await returns when there is a connection, or nobody waits for one any more.
func (p patient) await(ctx context.Context) {
	state := p.GetState()
	if settled(state) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	p.ResetConnectBackoff()
	for !settled(state) {
		if state == connectivity.Idle {
			p.Connect()
		}
		if !p.WaitForStateChange(ctx, state) {
			return
		}
		state = p.GetState()
	}
}

func settled(s connectivity.State) bool {
	return s == connectivity.Ready || s == connectivity.Shutdown
}
