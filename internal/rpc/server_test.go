package rpc

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

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
