package fakecri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// process is one life of a container.
type process struct {
	done        chan struct{} // closed when it has ended
	stops       []func()      // pending timers
	signalled   bool
	signalledAt time.Time
	grace       time.Duration
}

// StartContainer starts a container that was created and not started yet.
func (svc *runtimeService) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r := svc.r
	r.mu.Lock()
	c := r.findContainer(req.GetContainerId())
	if c == nil {
		r.mu.Unlock()
		return nil, containerNotFound(req.GetContainerId())
	}
	if err := c.checkStart(); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	c.starting = true
	delay := r.cfg.Latency["StartContainer"] + c.script.StartDelay
	r.mu.Unlock()

	err := r.wait(ctx, delay)
	if err == nil {
		err = c.script.StartErr
	}
	if err == nil {
		err = c.log.open()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.starting = false
	if r.containers[c.id] != c {
		return nil, containerNotFound(c.id)
	}
	if err == nil {
		err = c.checkStart()
	}
	if err != nil {
		c.startFailed(err)
		return nil, toStatus(err)
	}
	c.startLocked()
	return &runtimeapi.StartContainerResponse{}, nil
}

func (c *container) checkStart() error {
	switch {
	case c.starting:
		return status.Errorf(codes.Unknown, "failed to set starting state for container %q: container is already in starting state", c.id)
	case c.state != Created:
		return status.Errorf(codes.Unknown, "failed to set starting state for container %q: container is in %s state", c.id, c.criState())
	case c.sandbox.state != Ready:
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", c.sandbox.id)
	}
	return nil
}

// startFailed leaves the container as containerd does: exited, with a reason of its own.
func (c *container) startFailed(err error) {
	if c.state != Created {
		return
	}
	c.finishedAt = time.Now()
	c.exitCode, c.reason, c.message = 128, "StartError", err.Error()
	c.to(Exited, "StartContainer", Transition{})
}

// startLocked begins the script.
func (c *container) startLocked() {
	c.startedAt = time.Now()
	c.proc = &process{done: make(chan struct{})}
	c.to(Running, "StartContainer", Transition{})
	c.r.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	for _, line := range c.script.Log {
		log := c.log
		if log == nil {
			break
		}
		c.proc.stops = append(c.proc.stops, c.r.afterLocked(line.After, func() { log.write(line) }))
	}
	run := c.script.run(c.cfg.GetMetadata().GetAttempt())
	if run.For < 0 {
		return
	}
	c.proc.stops = append(c.proc.stops, c.r.afterLocked(run.For, func() { c.exitLocked(run.Code, run.Reason, "process", "") }))
}

// exitLocked ends the process of a container that runs.
func (c *container) exitLocked(code int32, reason, cause, signal string) {
	p := c.proc
	for _, stop := range p.stops {
		stop()
	}
	c.finishedAt = time.Now()
	c.exitCode, c.reason = code, reason
	close(p.done)
	c.to(Exited, cause, Transition{Signal: signal, Grace: p.grace, SignalledAt: p.signalledAt})
	c.log.close()
	c.r.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// termLocked sends SIGTERM once; later calls only renew the grace.
func (c *container) termLocked(grace time.Duration) {
	p := c.proc
	p.grace = grace
	if p.signalled {
		return
	}
	p.signalled, p.signalledAt = true, time.Now()
	t := c.script.OnTerm
	switch {
	case t.Ignore:
	case t.After <= 0:
		c.exitLocked(t.Code, "", "StopContainer", "TERM")
	default:
		p.stops = append(p.stops, c.r.afterLocked(t.After, func() { c.exitLocked(t.Code, "", "StopContainer", "TERM") }))
	}
}

// StopContainer sends SIGTERM, waits for the timeout and sends SIGKILL. A container that
// does not run is a success, and so is an unknown one, except to containerd 1.6. When the
// caller's context ends first, the signal stays sent and nothing is killed.
func (svc *runtimeService) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r := svc.r
	if err := r.wait(ctx, r.cfg.Latency["StopContainer"]); err != nil {
		return nil, err
	}
	grace := time.Duration(max(req.GetTimeout(), 0)) * time.Second
	r.mu.Lock()
	c := r.findContainer(req.GetContainerId())
	if c == nil && r.cfg.Containerd16 {
		r.mu.Unlock()
		return nil, containerNotFound(req.GetContainerId())
	}
	if c == nil || c.state != Running {
		r.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	p := c.proc
	if grace > 0 {
		c.termLocked(grace)
	} else {
		p.grace = 0
	}
	r.mu.Unlock()
	if grace > 0 {
		ended, err := r.waitDone(ctx, p, grace)
		if err != nil {
			return nil, err
		}
		if ended {
			return &runtimeapi.StopContainerResponse{}, nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.state == Running {
		p.grace = grace
		c.exitLocked(137, "", "StopContainer", "KILL")
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *Runtime) waitDone(ctx context.Context, p *process, d time.Duration) (bool, error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	case <-r.closed:
		return false, status.Error(codes.Unavailable, "the fake runtime was closed")
	}
}
