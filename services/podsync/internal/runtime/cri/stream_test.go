package cri

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// commands is a connection to a runtime whose commands end at once, or never,
// and whose answers take a second to read.
type commands struct {
	grpc.ClientConnInterface
	reading, most atomic.Int32
}

func (c *commands) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &command{conn: c, ctx: ctx}, nil
}

type command struct {
	grpc.ClientStream
	conn  *commands
	ctx   context.Context
	hangs bool
}

func (c *command) SendMsg(m any) error {
	c.hangs = m.(*runtimeapi.ExecSyncRequest).GetCmd()[0] == "hang"
	return nil
}

func (c *command) CloseSend() error { return nil }

func (c *command) Header() (metadata.MD, error) {
	if c.hangs {
		<-c.ctx.Done()
		return nil, c.ctx.Err()
	}
	return nil, nil
}

func (c *command) RecvMsg(any) error {
	now := c.conn.reading.Add(1)
	for most := c.conn.most.Load(); now > most && !c.conn.most.CompareAndSwap(most, now); most = c.conn.most.Load() {
	}
	time.Sleep(time.Second)
	c.conn.reading.Add(-1)
	return nil
}

func TestFewAnswersOfCommandsAreReadAtOnceAndCommandsThatHangTakeNoPlace(t *testing.T) {
	for name, run := range map[string]func(c *Client, ctx context.Context, program string) error{
		"of probes": func(c *Client, ctx context.Context, program string) error {
			_, err := c.Raw().ExecSync(ctx, &runtimeapi.ExecSyncRequest{Cmd: []string{program}, Timeout: 60})
			return err
		},
		"of hooks": func(c *Client, ctx context.Context, program string) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err := c.ExecSync(ctx, "id", []string{program}, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { fewAnswersAtOnce(t, run) })
	}
}

func fewAnswersAtOnce(t *testing.T, exec func(c *Client, ctx context.Context, program string) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn := &commands{}
		client := New(Config{}, conn, conn, nil)
		run := func(ctx context.Context, program string) error { return exec(client, ctx, program) }
		var hanging, ending sync.WaitGroup
		for range 3 * parallelAnswers {
			hanging.Go(func() {
				if run(t.Context(), "hang") == nil {
					t.Error("a command that hangs has an answer")
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		for range 3 * parallelAnswers {
			ending.Go(func() {
				if err := run(t.Context(), "end"); err != nil {
					t.Error(err)
				}
			})
		}
		ending.Wait()
		if most := conn.most.Load(); most != parallelAnswers {
			t.Errorf("%d answers were read at once, want %d", most, parallelAnswers)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the answers took %s", took)
		}
		hanging.Wait() // their timeout ends them
	})
}
