package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container. Timeout zero means none: the command
// is then bounded by ctx alone. The answers of few are read at once, also beside
// those of Raw.
func (c *Client) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	req := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64((timeout + time.Second - 1) / time.Second)}
	if timeout <= 0 {
		return call(ctx, c, "exec_sync", 0, req, c.execSync)
	}
	return call(ctx, c, "exec_sync", c.execLimit(req), req, c.execSync)
}

// Raw are the calls that others make through podsync, in CRI's own messages.
type Raw struct{ c *Client }

// Raw returns the calls that are handed through.
func (c *Client) Raw() Raw { return Raw{c} }

// longestExec bounds a command that has no timeout of its own.
const longestExec = 24 * time.Hour

// execLimit is how long a command may take and its answer with it. What the
// command has started and left behind may hold its output, and the runtime waits
// for that, so an answer may take longer than a look.
func (c *Client) execLimit(req *runtimeapi.ExecSyncRequest) time.Duration {
	if req.GetTimeout() <= 0 {
		return longestExec
	}
	return time.Duration(min(req.GetTimeout(), int64(longestExec/time.Second)))*time.Second + c.cfg.RequestTimeout
}

// ExecSync runs a command in a container, within the request's timeout. The
// answers of few are read at once.
func (r Raw) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return call(ctx, r.c, "exec_sync", r.c.execLimit(req), req, r.c.execSync)
}

// parallelAnswers is how many outputs of commands are read at once. A runtime
// lets 16 MiB of each through, and the pods say how many there are and how large.
const parallelAnswers = 4

// execSync is the RPC ExecSync, done as the stream that it is on the wire, so
// that the answer can be left with the runtime until there is room to read it. A
// command that runs takes no place: only its end does, and that does not hang.
func (c *Client) execSync(ctx context.Context, req *runtimeapi.ExecSyncRequest, opts ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{}, runtimeapi.RuntimeService_ExecSync_FullMethodName, opts...)
	if err != nil {
		return nil, err
	}
	// io.EOF says that the call has failed; reading tells how.
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	if _, err := stream.Header(); err != nil {
		return nil, err
	}
	select {
	case c.answers <- struct{}{}:
		defer func() { <-c.answers }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	resp := new(runtimeapi.ExecSyncResponse)
	if err := stream.RecvMsg(resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// ContainerStatus looks at one container.
func (r Raw) ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return look(ctx, r.c, "container_status", req, r.c.runtime.ContainerStatus)
}

// Exec prepares a session.
func (r Raw) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return call(ctx, r.c, "exec", r.c.cfg.LookTimeout, req, r.c.runtime.Exec)
}

// Attach prepares a session.
func (r Raw) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return call(ctx, r.c, "attach", r.c.cfg.LookTimeout, req, r.c.runtime.Attach)
}

// PortForward prepares a session.
func (r Raw) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return call(ctx, r.c, "port_forward", r.c.cfg.LookTimeout, req, r.c.runtime.PortForward)
}

// longestCheckpoint bounds a checkpoint whose request leaves it to the runtime.
const longestCheckpoint = 10 * time.Minute

// CheckpointContainer writes a container's state to a file on the node.
func (r Raw) CheckpointContainer(ctx context.Context, req *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	limit := longestCheckpoint
	if req.GetTimeout() > 0 {
		limit = time.Duration(min(req.GetTimeout(), int64(longestExec/time.Second)))*time.Second + r.c.cfg.LookTimeout
	}
	return call(ctx, r.c, "checkpoint_container", limit, req, r.c.runtime.CheckpointContainer)
}

// ListContainerStats returns the runtime's account of containers.
func (r Raw) ListContainerStats(ctx context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return call(ctx, r.c, "list_container_stats", r.c.cfg.LookTimeout, req, r.c.runtime.ListContainerStats)
}

// ListImages lists images.
func (r Raw) ListImages(ctx context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return call(ctx, r.c, "list_images", r.c.cfg.LookTimeout, req, r.c.images.ListImages)
}

// ImageFsInfo describes where images and containers lie.
func (r Raw) ImageFsInfo(ctx context.Context, req *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, r.c, "image_fs_info", r.c.cfg.LookTimeout, req, r.c.images.ImageFsInfo)
}
