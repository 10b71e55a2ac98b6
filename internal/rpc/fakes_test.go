package rpc

import (
	"context"
	"net"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/polylet/polylet/internal/uds"
)

// echo is a service whose behaviour is two functions.
type echo struct {
	healthgrpc.UnimplementedHealthServer
	check func(context.Context) error
	watch func(context.Context) error
}

func (e echo) Check(ctx context.Context, _ *healthgrpc.HealthCheckRequest) (*healthgrpc.HealthCheckResponse, error) {
	return &healthgrpc.HealthCheckResponse{}, e.check(ctx)
}

func (e echo) Watch(_ *healthgrpc.HealthCheckRequest, s grpc.ServerStreamingServer[healthgrpc.HealthCheckResponse]) error {
	return e.watch(s.Context())
}

func start(t *testing.T, cfg ServerConfig, e echo) healthgrpc.HealthClient {
	t.Helper()
	cfg.Log, cfg.Insecure = logr.Discard(), true
	return healthgrpc.NewHealthClient(connect(t, NewServer(cfg), e))
}

// serve serves e to a caller whom the policy takes for peer.
func serve(t *testing.T, cfg ServerConfig, peer uds.Peer, e echo) *grpc.ClientConn {
	t.Helper()
	cfg.Log, cfg.Stopping = logr.Discard(), context.Background()
	p := &policy{cfg: cfg, peerOf: func(context.Context) (uds.Peer, bool) { return peer, true }}
	return connect(t, grpc.NewServer(serverOptions(p)...), e)
}

// connect serves e on a server until the test ends, and returns a connection to it.
func connect(t *testing.T, server *grpc.Server, e echo) *grpc.ClientConn {
	t.Helper()
	healthgrpc.RegisterHealthServer(server, e)
	l := bufconn.Listen(1 << 16)
	go server.Serve(l)
	conn, err := grpc.NewClient("passthrough:bufnet", append(ClientOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop() })
	return conn
}
