package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/polylet/polylet/internal/rpcerr"
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
	l := bufconn.Listen(1 << 16)
	server := NewServer(cfg)
	healthgrpc.RegisterHealthServer(server, e)
	go server.Serve(l)
	conn, err := grpc.NewClient("passthrough:bufnet", append(ClientOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop() })
	return healthgrpc.NewHealthClient(conn)
}

func TestAPanicFailsTheCallAndNotTheProcess(t *testing.T) {
	c := start(t, ServerConfig{}, echo{check: func(context.Context) error { panic("boom") }})
	_, err := c.Check(t.Context(), &healthgrpc.HealthCheckRequest{})
	if !errors.Is(err, rpcerr.ErrInternal) || !strings.Contains(err.Error(), "boom") {
		t.Fatalf("err = %v", err)
	}
	if _, err := c.Check(t.Context(), &healthgrpc.HealthCheckRequest{}); !errors.Is(err, rpcerr.ErrInternal) {
		t.Fatalf("second call: %v", err)
	}
}

func TestErrorClassesCrossInCallsAndStreams(t *testing.T) {
	fail := func(context.Context) error { return fmt.Errorf("container %q: %w", "c", rpcerr.ErrNotFound) }
	c := start(t, ServerConfig{}, echo{check: fail, watch: fail})
	if _, err := c.Check(t.Context(), &healthgrpc.HealthCheckRequest{}); !errors.Is(err, rpcerr.ErrNotFound) {
		t.Fatalf("unary: %v", err)
	}
	s, err := c.Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, rpcerr.ErrNotFound) || status.Code(err) != codes.NotFound {
		t.Fatalf("stream: %v", err)
	}
}

func TestACallWithoutADeadlineGetsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, ServerConfig{}, echo{check: func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			if !ok || time.Until(deadline) > ClientTimeout {
				return fmt.Errorf("deadline %v %v", deadline, ok)
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		begin := time.Now()
		_, err := c.Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		if !errors.Is(err, rpcerr.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != ClientTimeout {
			t.Fatalf("err = %v after %v", err, time.Since(begin))
		}
	})
}

func TestStoppingEndsStreamsAsUnavailable(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	running := make(chan struct{})
	c := start(t, ServerConfig{Stopping: stopping}, echo{watch: func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		return ctx.Err()
	}})
	s, err := c.Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-running
	stop()
	if _, err := s.Recv(); !errors.Is(err, rpcerr.ErrUnavailable) || !strings.Contains(err.Error(), "stopping") {
		t.Fatalf("err = %v", err)
	}
}

func TestMutatingCallsAreBoundToUsers(t *testing.T) {
	access := Access{UIDs: []uint32{65532}}
	for _, tc := range []struct {
		uid uint32
		ok  bool
	}{{0, true}, {65532, true}, {1000, false}} {
		err := access.check("/x/Y", uds.Peer{UID: tc.uid})
		if (err == nil) != tc.ok {
			t.Errorf("uid %d: %v", tc.uid, err)
		}
		if err != nil && (!errors.Is(err, rpcerr.ErrForbidden) || !strings.Contains(err.Error(), "uid 65532") || !strings.Contains(err.Error(), "uid 1000")) {
			t.Errorf("unclear refusal: %v", err)
		}
	}
	p := &policy{cfg: ServerConfig{Log: logr.Discard(), Mutating: map[string]Access{"/x/Y": access}}}
	if err := p.admit(t.Context(), "/x/Y"); !errors.Is(err, rpcerr.ErrForbidden) {
		t.Errorf("an unknown caller may change: %v", err)
	}
	if err := p.admit(t.Context(), "/x/Read"); err != nil {
		t.Errorf("reading is refused: %v", err)
	}
}

func TestUsersAreNamesOrNumbers(t *testing.T) {
	access, missing := AllowUsers("root", "65532", "65532", "", "no-such-user-here")
	if len(access.UIDs) != 2 || access.UIDs[0] != 0 || access.UIDs[1] != 65532 {
		t.Fatalf("uids %v", access.UIDs)
	}
	if len(missing) != 1 || missing[0] != "no-such-user-here" {
		t.Fatalf("missing %v", missing)
	}
}

func TestAPeerOfAForeignReleaseIsRefused(t *testing.T) {
	for value, want := range map[string]error{"1": nil, "2": nil, "3": rpcerr.ErrPrecondition, "x": rpcerr.ErrInvalid} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(protocolKey, value))
		err := checkProtocol(ctx)
		if want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("protocol %s: %v", value, err)
		}
	}
	if err := checkProtocol(t.Context()); err != nil {
		t.Errorf("grpcurl is refused: %v", err)
	}
}
