package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

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

func TestWhoMayNotCallIsRefusedBeforeItsMessageIsRead(t *testing.T) {
	const method = "/grpc.health.v1.Health/Check"
	conn := serve(t, ServerConfig{Access: map[string]Access{method: {People: true}}}, uds.Peer{Pod: "0::/kubepods/p"}, echo{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The message is promised and does not come.
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&healthgrpc.HealthCheckResponse{}); !errors.Is(err, rpcerr.ErrForbidden) {
		t.Errorf("a caller in a pod: %v", err)
	}
	// What is not served is still told apart from what is not allowed.
	if err := conn.Invoke(ctx, "/grpc.health.v1.Health/Guess", &healthgrpc.HealthCheckRequest{}, &healthgrpc.HealthCheckResponse{}); !errors.Is(err, rpcerr.ErrUnimplemented) {
		t.Errorf("a method that is not served: %v", err)
	}
}

func TestAPersonHasOnlySoManyCallsAtOnce(t *testing.T) {
	began := make(chan struct{}, callsOfAPerson)
	conn := serve(t, ServerConfig{Access: map[string]Access{healthgrpc.Health_Watch_FullMethodName: {People: true}, healthgrpc.Health_Check_FullMethodName: {People: true}}},
		uds.Peer{UID: 1000}, echo{
			check: func(context.Context) error { return nil },
			watch: func(ctx context.Context) error { began <- struct{}{}; <-ctx.Done(); return ctx.Err() },
		})
	client := healthgrpc.NewHealthClient(conn)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range callsOfAPerson {
		if _, err := client.Watch(ctx, &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		<-began
	}
	check := func() error {
		_, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		return err
	}
	if err := check(); !errors.Is(err, rpcerr.ErrExhausted) {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for deadline := time.Now().Add(30 * time.Second); check() != nil; time.Sleep(time.Millisecond) { // a real connection: no bubble
		if time.Now().After(deadline) {
			t.Fatalf("calls that have ended still count: %v", check())
		}
	}
	// Ended calls of all kinds give their places back.
	for range 2 * callsOfAPerson {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServicesAndRootMayCallMoreOften(t *testing.T) {
	p := &policy{cfg: ServerConfig{Users: Users{"gateway": 60801}}}
	of := func(uid uint32) int { return p.most(uds.Peer{UID: uid}) }
	if root, service, person := of(0), of(60801), of(1000); root <= service || service != MaxStreams || person != callsOfAPerson {
		t.Errorf("root %d, a service %d, a person %d", root, service, person)
	}
}

// Root in a container is who may open the socket of Kubernetes' own APIs.
func TestAContainerHasFewCallsWhereverItMayCallAndSmallOnes(t *testing.T) {
	began := make(chan struct{}, callsOfAContainer)
	conn := serve(t, ServerConfig{Public: true}, uds.Peer{Pod: "0::/kubepods/p/c"}, echo{
		check: func(context.Context) error { return nil },
		watch: func(ctx context.Context) error { began <- struct{}{}; <-ctx.Done(); return ctx.Err() },
	})
	client := healthgrpc.NewHealthClient(conn)
	check := func(size int) error {
		_, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: strings.Repeat("x", size)})
		return err
	}
	if err := check(32 << 10); err != nil {
		t.Errorf("a request of 32 KiB: %v", err)
	}
	if err := check(128 << 10); status.Code(rpcerr.ToStatus(err).Err()) != codes.ResourceExhausted {
		t.Errorf("a request of 128 KiB: %v", err)
	}
	for range callsOfAContainer {
		if _, err := client.Watch(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		<-began
	}
	if err := check(0); !errors.Is(err, rpcerr.ErrExhausted) {
		t.Errorf("one more call: %v", err)
	}
}

func TestContainersCallsAreCountedWhateverTheirNumbers(t *testing.T) {
	var c calls
	p := &policy{cfg: ServerConfig{Users: Users{"gateway": 60801}}}
	begin := func(peer uds.Peer) (func(), error) { return c.begin(peer, p.most(peer)) }
	var end func()
	for i := range callsOfPods {
		// Any number, a service's too.
		var err error
		if end, err = begin(uds.Peer{UID: []uint32{0, 60801, 1000}[i%3], Pod: fmt.Sprintf("0::/kubepods/p%d", i/callsOfAContainer)}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if _, err := begin(uds.Peer{Pod: "0::/kubepods/p0"}); err == nil || !strings.Contains(err.Error(), "this container") {
		t.Errorf("a container has more than %d calls: %v", callsOfAContainer, err)
	}
	if _, err := begin(uds.Peer{Pod: "0::/kubepods/another"}); !errors.Is(err, rpcerr.ErrExhausted) {
		t.Errorf("pods have more than %d calls: %v", callsOfPods, err)
	}
	for _, uid := range []uint32{0, 60801, 1000} {
		if _, err := begin(uds.Peer{UID: uid}); err != nil {
			t.Errorf("uid %d of the host has no call for what pods do: %v", uid, err)
		}
	}
	end()
	if _, err := begin(uds.Peer{Pod: "0::/kubepods/another"}); err != nil {
		t.Errorf("a call that has ended still counts: %v", err)
	}
}
