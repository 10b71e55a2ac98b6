package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/polylet/polylet/internal/rpcerr"
)

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
