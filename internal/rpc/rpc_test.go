package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
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

func TestACallIsBoundToWhoeverIsNamed(t *testing.T) {
	users := Users{"gateway": 60801, "probes": 60802, "stats": 60803}
	const inPod = "0::/kubepods/pod1/c"
	for name, tc := range map[string]struct {
		access Access
		caller uds.Peer
		ok     bool
	}{
		"root":                          {Access{}, uds.Peer{}, true},
		"root in a pod":                 {Access{People: true}, uds.Peer{Pod: inPod}, false},
		"the service":                   {Access{Services: []string{"gateway"}}, uds.Peer{UID: 60801}, true},
		"its number in a pod":           {Access{Services: []string{"gateway"}}, uds.Peer{UID: 60801, Pod: inPod}, false},
		"another service":               {Access{Services: []string{"gateway"}}, uds.Peer{UID: 60802}, false},
		"a service among people's RPCs": {Access{People: true}, uds.Peer{UID: 60802}, false},
		"a member of the group":         {Access{People: true}, uds.Peer{UID: 1000}, true},
		"a member where none is named":  {Access{Services: []string{"gateway"}}, uds.Peer{UID: 1000}, false},
		"a member of the group's pod":   {Access{People: true}, uds.Peer{UID: 1000, Pod: inPod}, false},
		"nobody is named":               {Access{}, uds.Peer{UID: 60801}, false},
	} {
		if got := tc.access.allows(users, tc.caller); got != tc.ok {
			t.Errorf("%s: %v, want %v", name, got, tc.ok)
		}
	}
	err := Access{Services: []string{"gateway"}}.refusal(users, "/x/Y", uds.Peer{UID: 60802})
	for _, want := range []string{"/x/Y may be called by root, gateway", "uid 60802, the user of probes"} {
		if !errors.Is(err, rpcerr.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("unclear refusal, without %q: %v", want, err)
		}
	}
	if err := (Access{}).refusal(users, "/x/Y", uds.Peer{Pod: inPod}); !errors.Is(err, rpcerr.ErrForbidden) || !strings.Contains(err.Error(), inPod) {
		t.Errorf("unclear refusal of a pod: %v", err)
	}
	p := &policy{cfg: ServerConfig{Log: logr.Discard(), Access: map[string]Access{"/x/Y": {People: true}}}, peerOf: uds.PeerFrom}
	if err := p.admit(t.Context(), "/x/Y"); !errors.Is(err, rpcerr.ErrForbidden) {
		t.Errorf("an unknown caller is let in: %v", err)
	}
}

func TestASocketMayBeNamedByARelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := net.Listen("unix", "x.sock")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(ServerConfig{Log: logr.Discard()})
	healthgrpc.RegisterHealthServer(server, echo{check: func(context.Context) error { return nil }})
	go server.Serve(l)
	defer server.Stop()
	conn, err := Dial("x.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthgrpc.NewHealthClient(conn).Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

func TestRefusedCallsDoNotFillTheLog(t *testing.T) {
	var r refusals
	lines, now := 0, time.Now()
	call := func(uid uint32, method string) (unsaid int) {
		speak, unsaid := r.next(uds.Peer{UID: uid}, method, now)
		if speak {
			lines++
		}
		return unsaid
	}
	for range 1000 {
		call(1000, "/a")
		call(1000, "/b")
		call(1001, "/a")
	}
	if lines != 3 {
		t.Errorf("%d lines for three kinds of refused calls", lines)
	}
	for i := range uint32(10000) {
		call(i, "/c")
	}
	if lines > mostRefused+1 || len(r.count) > mostRefused+1 {
		t.Errorf("%d lines, %d kinds held", lines, len(r.count))
	}
	now = now.Add(quietFor)
	said := lines
	if unsaid := call(1000, "/a"); lines != said+1 || unsaid != 3*1000+10000-said {
		t.Errorf("after a minute: %d lines, %d were not said; want one, and %d", lines-said, unsaid, 3*1000+10000-said)
	}
}

func TestARequestThatIsTooLargeIsRefusedBeforeItIsHeld(t *testing.T) {
	c := start(t, ServerConfig{}, echo{check: func(context.Context) error { return nil }})
	ask := func(size int) error {
		// A client of another make has no bound of its own.
		_, err := c.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: strings.Repeat("x", size)}, grpc.MaxCallSendMsgSize(1<<30))
		return err
	}
	if err := ask(3 << 20); err != nil {
		t.Errorf("3 MiB: %v", err)
	}
	if err := ask(5 << 20); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("5 MiB: %v", err)
	}
}

func TestAConnectionHasOnlySoManyCallsAtOnce(t *testing.T) {
	var running atomic.Int32
	c := start(t, ServerConfig{}, echo{watch: func(ctx context.Context) error {
		running.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for range 10_000 {
		asking.Go(func() {
			if s, err := c.Watch(ctx, &healthgrpc.HealthCheckRequest{}); err == nil {
				_, _ = s.Recv()
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); running.Load() < MaxStreams && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // a real connection: no bubble
	}
	time.Sleep(50 * time.Millisecond) // for more to come, if more could
	if got := running.Load(); got != MaxStreams {
		t.Errorf("%d calls run at once, want %d", got, MaxStreams)
	}
}

func TestAMethodThatNobodyWasNamedForIsFound(t *testing.T) {
	server := grpc.NewServer()
	healthgrpc.RegisterHealthServer(server, echo{})
	access := map[string]Access{healthgrpc.Health_Check_FullMethodName: {}, healthgrpc.Health_List_FullMethodName: {}}
	err := CheckAccess(server, access)
	if err == nil || !strings.Contains(err.Error(), "/grpc.health.v1.Health/Watch has no entry") {
		t.Errorf("err = %v", err)
	}
	access[healthgrpc.Health_Watch_FullMethodName] = Access{}
	if err := CheckAccess(server, access); err != nil {
		t.Errorf("all have one: %v", err)
	}
	access["/x/Y"] = Access{}
	if err := CheckAccess(server, access); err == nil || !strings.Contains(err.Error(), "/x/Y is not served") {
		t.Errorf("err = %v", err)
	}
}

func TestUsersAreNamesOrNumbers(t *testing.T) {
	users, missing := LookupUsers(map[string]string{"podsync": "root", "gateway": "60801", "probes": "", "stats": "no-such-user-here"})
	if len(users) != 1 || users["gateway"] != 60801 {
		t.Fatalf("users %v", users)
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

// serve serves e to a caller whom the policy takes for peer.
func serve(t *testing.T, cfg ServerConfig, peer uds.Peer, e echo) *grpc.ClientConn {
	t.Helper()
	cfg.Log, cfg.Stopping = logr.Discard(), context.Background()
	server := grpc.NewServer(serverOptions(&policy{cfg: cfg, peerOf: func(context.Context) (uds.Peer, bool) { return peer, true }})...)
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
