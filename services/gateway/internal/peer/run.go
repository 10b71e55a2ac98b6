package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/gateway/internal/streaming"
)

// mostOutputs is how many outputs of commands of /run are held at once, from when they are
// read until the client has them. Each has up to 32 MiB, three times that while it is read,
// and a command says itself how much it is.
const mostOutputs = 3

// mostWaiting is how many outputs more may wait with podsync until these are taken:
// podsync has no bound of memory, and nothing ends it for what it takes.
const mostWaiting = 12

// Run implements streaming.Runtime. The RPC is done as the stream that it is on the wire,
// so that the answer can be left with podsync until there is room for it. A command that
// runs takes none: only its end does.
func (p *Podsync) Run(ctx context.Context, t streaming.Target, command []string) (*streaming.Output, error) {
	ctx, cancel := context.WithCancel(ctx) // whatever happens, podsync keeps no output
	defer cancel()
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{}, podsyncv1.PodSyncService_ExecSync_FullMethodName)
	if err != nil {
		return nil, rpcerr.FromStatus(err)
	}
	// io.EOF says that the call has failed; reading tells how.
	if err := stream.SendMsg(&podsyncv1.ExecSyncRequest{Pod: ref(t), Container: t.Container, Command: command}); err != nil && !errors.Is(err, io.EOF) {
		return nil, rpcerr.FromStatus(err)
	}
	if err := stream.CloseSend(); err != nil {
		return nil, rpcerr.FromStatus(err)
	}
	if _, err := stream.Header(); err != nil {
		return nil, rpcerr.FromStatus(err)
	}
	if err := p.room(ctx); err != nil {
		return nil, err
	}
	done := sync.OnceFunc(func() { <-p.outputs })
	res := new(podsyncv1.ExecSyncResponse)
	if err := stream.RecvMsg(res); err != nil {
		done()
		return nil, rpcerr.FromStatus(err)
	}
	return &streaming.Output{Stdout: res.GetStdout(), Stderr: res.GetStderr(), ExitCode: int(res.GetExitCode()), Done: done}, nil
}

// room waits for the room of an output.
func (p *Podsync) room(ctx context.Context) error {
	select {
	case p.outputs <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	default:
		return fmt.Errorf("%w: the command has run, but the outputs of %d others are not taken by their clients yet, and this one is dropped; run it again with less output, or later", rpcerr.ErrExhausted, mostOutputs+mostWaiting)
	}
	select {
	case p.outputs <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for room for the command's output, while others' are read: %w", ctx.Err())
	}
}
