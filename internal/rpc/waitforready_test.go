package rpc

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/polylet/polylet/internal/rpcerr"
)

// late returns a connection to a server that cannot be dialled before away is over.
func late(t *testing.T, away time.Duration) *grpc.ClientConn {
	t.Helper()
	back := time.Now().Add(away)
	server := NewServer(ServerConfig{Log: logr.Discard(), Insecure: true})
	healthgrpc.RegisterHealthServer(server, echo{
		check: func(context.Context) error { return nil },
		watch: func(context.Context) error { return nil },
	})
	l := bufconn.Listen(1 << 16)
	go server.Serve(l)
	conn, err := grpc.NewClient("passthrough:bufnet", append(ClientOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if time.Now().Before(back) {
				return nil, errors.New("connection refused")
			}
			return l.DialContext(ctx)
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop() })
	return conn
}

func TestACallWaitsForAServerThatIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := late(t, 2*time.Second)
		if _, err := healthgrpc.NewHealthClient(conn).Check(t.Context(), &healthgrpc.HealthCheckRequest{}); !errors.Is(err, rpcerr.ErrUnavailable) {
			t.Fatalf("a call that does not wait gives %v", err)
		}
		// It is dialled once more up to 1.2 s after it was away, and may need a moment.
		if _, err := healthgrpc.NewHealthClient(WaitForReady(conn, 5*time.Second)).Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Errorf("a call that waits gives %v", err)
		}
	})
}

// The connection's own pause is up to a second; a server that came back within it is found at once.
func TestACallThatWaitsDoesNotWaitForTheConnectionsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := late(t, time.Minute)
		check := func() error {
			_, err := healthgrpc.NewHealthClient(conn).Check(t.Context(), &healthgrpc.HealthCheckRequest{})
			return err
		}
		if err := check(); !errors.Is(err, rpcerr.ErrUnavailable) {
			t.Fatalf("a call while the server is away gives %v", err)
		}
		time.Sleep(time.Minute) // the bubble's clock: it is back now
		begin := time.Now()
		if err := check(); !errors.Is(err, rpcerr.ErrUnavailable) {
			t.Fatalf("the connection has no pause: a call that does not wait gives %v", err)
		}
		stream, err := healthgrpc.NewHealthClient(WaitForReady(conn, 3*time.Second)).Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
		if err != nil || time.Since(begin) != 0 {
			t.Errorf("a call that waits gives %v, %v, after %v", stream, err, time.Since(begin))
		}
	})
}

func TestTheWaitForAServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := WaitForReady(late(t, time.Hour), 3*time.Second)
		begin := time.Now()
		_, err := healthgrpc.NewHealthClient(conn).Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		if took := time.Since(begin); !errors.Is(err, rpcerr.ErrUnavailable) || took != 3*time.Second {
			t.Errorf("a call that waits gives %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		_, err = healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
		if took := time.Since(begin); err == nil || took != time.Second {
			t.Errorf("a call with a second left gives %v after %v", err, took)
		}
	})
}

func TestAConnectionThatRestsOrHasEndedIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, wantErr := range map[string]bool{"rests": false, "has ended": true} {
			conn := late(t, 0)
			if wantErr {
				conn.Close()
			}
			begin := time.Now()
			_, err := healthgrpc.NewHealthClient(WaitForReady(conn, time.Hour)).Check(t.Context(), &healthgrpc.HealthCheckRequest{})
			if (err != nil) != wantErr || time.Since(begin) != 0 {
				t.Errorf("one that %s: %v after %v", name, err, time.Since(begin))
			}
		}
	})
}
