package peer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/gateway/internal/streaming"
)

// commandsConn is a podsync at which the command "hang" never ends; it counts the outputs
// that were read.
type commandsConn struct {
	grpc.ClientConnInterface
	mu   sync.Mutex
	read int
	all  []context.Context
}

func (c *commandsConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, ctx)
	return &commandStream{conn: c, ctx: ctx}, nil
}

type commandStream struct {
	grpc.ClientStream
	conn  *commandsConn
	ctx   context.Context
	hangs bool
}

func (s *commandStream) SendMsg(m any) error {
	req, _ := m.(*podsyncv1.ExecSyncRequest)
	s.hangs = req.GetCommand()[0] == "hang"
	return nil
}

func (s *commandStream) CloseSend() error { return nil }

func (s *commandStream) Header() (metadata.MD, error) {
	if s.hangs {
		<-s.ctx.Done()
		return nil, s.ctx.Err()
	}
	return nil, nil
}

func (s *commandStream) RecvMsg(m any) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.read++
	res, _ := m.(*podsyncv1.ExecSyncResponse)
	res.Stdout = []byte("x")
	return nil
}

// givenUp is of how many streams podsync keeps nothing.
func (c *commandsConn) givenUp() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ctx := range c.all {
		if ctx.Err() != nil {
			n++
		}
	}
	return n
}

func (c *commandsConn) wasRead() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

func TestFewOutputsOfCommandsAreHeldAndCommandsThatRunTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &commandsConn{}
		p := NewPodsync(conn)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var group sync.WaitGroup
		defer group.Wait()
		for range 3 * mostOutputs {
			group.Go(func() {
				if out, err := p.Run(ctx, streaming.Target{}, []string{"hang"}); err == nil {
					t.Errorf("a command that hangs has the output %q", out.Stdout)
				}
			})
		}
		outputs := make(chan *streaming.Output, 2*mostOutputs)
		for range 2 * mostOutputs {
			group.Go(func() {
				out, err := p.Run(ctx, streaming.Target{}, []string{"end"})
				if err != nil {
					t.Error(err)
					return
				}
				outputs <- out
			})
		}
		for held := range mostOutputs + 1 {
			synctest.Wait()
			if read := conn.wasRead(); read != mostOutputs+held {
				t.Fatalf("%d were read when clients have got %d, want %d", read, held, mostOutputs+held)
			}
			out := <-outputs
			out.Done()
			out.Done() // once more changes nothing
		}
	})
}

func TestOutputsThatWaitWithPodsyncAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &commandsConn{}
		p := NewPodsync(conn)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		for range mostOutputs + mostWaiting {
			group.Go(func() { _, _ = p.Run(ctx, streaming.Target{}, []string{"end"}) })
		}
		synctest.Wait()
		if _, err := p.Run(ctx, streaming.Target{}, []string{"end"}); !errors.Is(err, rpcerr.ErrExhausted) {
			t.Errorf("one more ends with %v", err)
		}
		if given := conn.givenUp(); given != mostOutputs+1 { // those that were read, too, are over
			t.Errorf("%d streams have ended, want %d", given, mostOutputs+1)
		}
	})
}
