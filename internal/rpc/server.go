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
	// MaxMessageBytes bounds one message of a server: a snapshot of a full node fits.
	MaxMessageBytes = 64 << 20
	// MaxRequestBytes bounds one message of a client.
	MaxRequestBytes = 4 << 20
	// maxPublicRequestBytes bounds one message of a client of a Public server:
	// Kubernetes' own questions are a few names.
	maxPublicRequestBytes = 64 << 10
	// MaxStreams bounds the calls of one connection at once: twice the sessions
	// that the gateway lets in.
	MaxStreams = 1024
	// maxHeaderBytes bounds the metadata of a call.
	maxHeaderBytes = 16 << 10
	// DefaultTimeout is what a unary call gets when its caller set no deadline.
	DefaultTimeout = 2 * time.Minute
	// SlowAfter is when a unary call is logged as slow.
	SlowAfter = 5 * time.Second
)

// ServerConfig describes a server.
type ServerConfig struct {
	// Log gets panics, refusals and slow calls.
	Log logr.Logger
	// Access says who may call which RPC, by full method name
	// ("/polylet.podsync.v1.PodSyncService/ExecSync"). One that is not in it is
	// root's alone; CheckAccess finds those.
	Access map[string]Access
	// Users are the services' users, which Access names.
	Users Users
	// Public leaves who may call to the owner and mode of the socket, also for
	// processes of pods: for Kubernetes' own APIs at their documented paths,
	// whose clients run in pods with a hostPath.
	Public bool
	// HiddenCallers are taken by their user alone, though nobody can see whether
	// they run in a pod. For processes that are kept from seeing others.
	HiddenCallers bool
	// Stopping, when done, ends all streams. nil never does.
	Stopping context.Context
	// Inner is what happens around a unary call that was admitted.
	Inner []grpc.UnaryServerInterceptor
	// Insecure leaves out peer credentials, for tests over bufconn. Then
	// everybody counts as root.
	Insecure bool
}

// NewServer returns a server with the house's interceptors.
func NewServer(cfg ServerConfig) *grpc.Server {
	if cfg.Stopping == nil {
		cfg.Stopping = context.Background()
	}
	opts := serverOptions(&policy{cfg: cfg, peerOf: uds.PeerFrom})
	if !cfg.Insecure {
		opts = append(opts, grpc.Creds(uds.Credentials(cfg.HiddenCallers || cfg.Public)))
	}
	return grpc.NewServer(opts...)
}

// serverOptions are all but the credentials.
func serverOptions(p *policy) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(p.tap),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{p.unary}, p.cfg.Inner...)...),
		grpc.ChainStreamInterceptor(p.stream),
		grpc.MaxRecvMsgSize(mostOfARequest(p.cfg)),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.ForceServerCodecV2(newAnswers()),
		grpc.MaxConcurrentStreams(MaxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		// What a client may send before it is read.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		// Buffers are per connection; the peers are few and local.
		grpc.ReadBufferSize(16 << 10),
		grpc.WriteBufferSize(16 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

func mostOfARequest(cfg ServerConfig) int {
	if cfg.Public {
		return maxPublicRequestBytes
	}
	return MaxRequestBytes
}
