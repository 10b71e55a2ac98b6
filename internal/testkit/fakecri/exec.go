package fakecri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command as the container's script says.
func (svc *runtimeService) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	r := svc.r
	r.mu.Lock()
	c, err := r.runningContainerLocked(req.GetContainerId(), "failed to exec in container")
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	call := ExecCall{Container: c.info(), Command: req.GetCmd(), Since: time.Since(c.startedAt), N: c.execs}
	c.execs++
	p, script := c.proc, c.script
	r.mu.Unlock()

	var res ExecResult
	if script.Exec != nil {
		res = script.Exec(call)
	}
	limit := time.Duration(max(req.GetTimeout(), 0)) * time.Second
	late := limit > 0 && res.After > limit
	wait := res.After
	if late {
		wait = limit
	}
	ended, err := r.waitExec(ctx, p, wait)
	switch {
	case err != nil:
		return nil, err
	case ended:
		return &runtimeapi.ExecSyncResponse{Stdout: []byte(res.Stdout), Stderr: []byte(res.Stderr), ExitCode: 137}, nil
	case late:
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: context deadline exceeded", limit)
	case res.Err != nil:
		return nil, toStatus(res.Err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(res.Stdout), Stderr: []byte(res.Stderr), ExitCode: res.Code}, nil
}

func (r *Runtime) waitExec(ctx context.Context, p *process, d time.Duration) (ended bool, err error) {
	if d <= 0 {
		return false, nil
	}
	ended, err = r.waitDone(ctx, p, d)
	return ended, err
}

// runningContainerLocked finds a container that runs.
func (r *Runtime) runningContainerLocked(id, doing string) (*container, error) {
	c := r.findContainer(id)
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "%s: an error occurred when try to find container %q: not found", doing, id)
	}
	if c.state != Running {
		return nil, status.Errorf(codes.Unknown, "%s: container is in %s state", doing, c.criState())
	}
	return c, nil
}

// Exec answers a URL that leads nowhere.
func (svc *runtimeService) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := svc.streamURL("exec", req.GetContainerId())
	return &runtimeapi.ExecResponse{Url: url}, err
}

// Attach answers a URL that leads nowhere.
func (svc *runtimeService) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := svc.streamURL("attach", req.GetContainerId())
	return &runtimeapi.AttachResponse{Url: url}, err
}

func (svc *runtimeService) streamURL(what, id string) (string, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	c, err := svc.r.runningContainerLocked(id, "failed to find running container")
	if err != nil {
		return "", err
	}
	return svc.r.cfg.StreamURL + "/" + what + "/" + c.id[:8], nil
}

// PortForward answers a URL that leads nowhere.
func (svc *runtimeService) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	s := svc.r.findSandbox(req.GetPodSandboxId())
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox %q: not found", req.GetPodSandboxId())
	}
	if s.state != Ready {
		return nil, status.Error(codes.Unknown, "sandbox container is not running")
	}
	return &runtimeapi.PortForwardResponse{Url: svc.r.cfg.StreamURL + "/portforward/" + s.id[:8]}, nil
}

// ReopenContainerLog opens the log file anew after a rotation.
func (svc *runtimeService) ReopenContainerLog(_ context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	svc.r.mu.Lock()
	c := svc.r.findContainer(req.GetContainerId())
	if c == nil {
		svc.r.mu.Unlock()
		return nil, containerNotFound(req.GetContainerId())
	}
	if c.state != Running {
		svc.r.mu.Unlock()
		return nil, status.Error(codes.Unknown, "container is not running")
	}
	log := c.log
	svc.r.mu.Unlock()
	log.close()
	if err := log.open(); err != nil {
		return nil, toStatus(err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
