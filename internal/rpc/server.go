// Package rpc builds gRPC servers and clients for the sockets between the
// processes: panics, deadlines, error classes, access and slow calls are dealt
// with here once. It must never know what a service does.
package rpc

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/polylet/polylet/internal/uds"
)

// Limits that both sides share.
const (
	// MaxMessageBytes bounds one message: a snapshot of a full node fits.
	MaxMessageBytes = 64 << 20
	// DefaultTimeout is what a unary call gets when its caller set no deadline.
	DefaultTimeout = 2 * time.Minute
	// SlowAfter is when a unary call is logged as slow.
	SlowAfter = 5 * time.Second
)

// ServerConfig describes a server.
type ServerConfig struct {
	// Log gets panics, refusals and slow calls.
	Log logr.Logger
	// Mutating says who may call which RPC that changes something, by full
	// method name ("/polylet.podsync.v1.PodSyncService/ExecSync"). RPCs that
	// are not in it only need the connection.
	Mutating map[string]Access
	// Stopping, when done, ends all streams. nil never does.
	Stopping context.Context
	// Insecure leaves out peer credentials, for tests over bufconn. Then
	// everybody counts as root.
	Insecure bool
}

// NewServer returns a server with the house's interceptors.
func NewServer(cfg ServerConfig) *grpc.Server {
	if cfg.Stopping == nil {
		cfg.Stopping = context.Background()
	}
	p := &policy{cfg: cfg}
	opts := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(p.unary),
		grpc.ChainStreamInterceptor(p.stream),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		// Buffers are per connection; the peers are few and local.
		grpc.ReadBufferSize(16 << 10),
		grpc.WriteBufferSize(16 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if !cfg.Insecure {
		opts = append(opts, grpc.Creds(uds.Credentials()))
	}
	return grpc.NewServer(opts...)
}
