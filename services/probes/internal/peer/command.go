package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/probes/internal/handler"
)

// Commander runs exec probes through podsync. See NewCommander.
type Commander struct {
	client podsyncv1.PodSyncServiceClient
}

var _ handler.Commander = (*Commander)(nil)

// NewCommander returns a Commander over a connection to podsync's socket.
func NewCommander(conn grpc.ClientConnInterface) *Commander {
	return &Commander{client: podsyncv1.NewPodSyncServiceClient(conn)}
}

const (
	// grace is how much longer than the command itself its call may take: podsync
	// gives the runtime 2 min, for what a command leaves behind may hold its output.
	grace = 2*time.Minute + 10*time.Second
	// lastMoment is how close to its end a call counts as over: podsync has the same
	// deadline, and whose answer is seen first is chance.
	lastMoment = 100 * time.Millisecond
)

// RunCommand implements handler.Commander.
func (c *Commander) RunCommand(ctx context.Context, cmd handler.Command) ([]byte, int, error) {
	end := time.Now().Add(cmd.Timeout + grace)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	output, code, err := c.run(ctx, cmd)
	if err == nil {
		return output, code, nil
	}
	err = rpcerr.FromStatus(err)
	switch {
	case ctx.Err() != nil, errors.Is(err, rpcerr.ErrTimeout) && time.Until(end) < lastMoment:
		// Our own deadline: podsync or the runtime hangs, which says nothing
		// about the container.
		return nil, 0, fmt.Errorf("podsync did not answer the exec probe of %s/%s:%s within %s: %w",
			cmd.Target.Namespace, cmd.Target.Name, cmd.Target.Key.Container, cmd.Timeout+grace, err)
	case errors.Is(err, rpcerr.ErrTimeout):
		return nil, 0, fmt.Errorf("%w: %w", handler.ErrCommandTimeout, err)
	case errors.Is(err, rpcerr.ErrUnavailable), errors.Is(err, rpcerr.ErrNotFound),
		errors.Is(err, rpcerr.ErrPrecondition), errors.Is(err, context.Canceled):
		return nil, 0, fmt.Errorf("%w: %w", handler.ErrAway, err)
	default:
		return nil, 0, err
	}
}

// run has podsync run the command that the spec has. A podsync of the release
// before takes the command from here.
func (c *Commander) run(ctx context.Context, cmd handler.Command) (output []byte, code int, err error) {
	res, err := c.client.ExecProbe(ctx, &podsyncv1.ExecProbeRequest{Key: fromKey(cmd.Target.Key), ContainerId: cmd.Target.ContainerID})
	if !errors.Is(rpcerr.FromStatus(err), rpcerr.ErrUnimplemented) {
		return res.GetOutput(), int(res.GetExitCode()), err
	}
	old, err := c.client.ExecSync(ctx, &podsyncv1.ExecSyncRequest{
		Pod:         pod(cmd.Target),
		Container:   cmd.Target.Key.Container,
		ContainerId: cmd.Target.ContainerID,
		Command:     cmd.Args,
		Timeout:     durationpb.New(cmd.Timeout),
	})
	return append(old.GetStdout(), old.GetStderr()...), int(old.GetExitCode()), err
}
