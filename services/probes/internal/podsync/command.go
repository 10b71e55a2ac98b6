package podsync

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

// grace is how much longer than the command itself its call may take.
const grace = 2 * time.Second

// RunCommand implements handler.Commander.
func (c *Commander) RunCommand(ctx context.Context, cmd handler.Command) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout+grace)
	defer cancel()
	res, err := c.client.ExecSync(ctx, &podsyncv1.ExecSyncRequest{
		Pod:         pod(cmd.Target),
		Container:   cmd.Target.Key.Container,
		ContainerId: cmd.Target.ContainerID,
		Command:     cmd.Args,
		Timeout:     durationpb.New(cmd.Timeout),
	})
	if err == nil {
		return append(res.GetStdout(), res.GetStderr()...), int(res.GetExitCode()), nil
	}
	err = rpcerr.FromStatus(err)
	switch {
	case ctx.Err() != nil:
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
