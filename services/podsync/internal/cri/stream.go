package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container. Timeout zero means none: the command
// is then bounded by ctx alone.
func (c *Client) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	req := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64((timeout + time.Second - 1) / time.Second)}
	if timeout <= 0 {
		return call(ctx, c, "exec_sync", 0, req, c.runtime.ExecSync)
	}
	return c.Raw().ExecSync(ctx, req)
}

// Raw are the calls that others make through podsync, in CRI's own messages.
type Raw struct{ c *Client }

// Raw returns the calls that are handed through.
func (c *Client) Raw() Raw { return Raw{c} }

// longestExec bounds a command that has no timeout of its own.
const longestExec = 24 * time.Hour

// ExecSync runs a command in a container, within the request's timeout.
func (r Raw) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	limit := longestExec
	if req.GetTimeout() > 0 {
		limit = time.Duration(min(req.GetTimeout(), int64(longestExec/time.Second)))*time.Second + r.c.cfg.LookTimeout
	}
	return call(ctx, r.c, "exec_sync", limit, req, r.c.runtime.ExecSync)
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
