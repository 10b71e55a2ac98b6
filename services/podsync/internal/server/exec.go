package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/env"
)

// mostOutput is how much of each of a command's two outputs is returned, in bytes.
const mostOutput = 16 << 20

// ExecSync implements PodSyncService.
func (s *Server) ExecSync(ctx context.Context, req *podsyncv1.ExecSyncRequest) (*podsyncv1.ExecSyncResponse, error) {
	c, err := s.target(ctx, req.GetPod(), req.GetContainer(), req.GetCommand())
	if err != nil {
		return nil, err
	}
	if id := req.GetContainerId(); id != "" && id != c.ID {
		return nil, fmt.Errorf("%w: container %q of pod %q runs as %s now, not as %s", rpcerr.ErrPrecondition, c.Name, c.PodName, c.ID, id)
	}
	call := &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: req.GetCommand()}
	if d := req.GetTimeout().AsDuration(); d > 0 {
		call.Timeout = max(int64(d.Seconds()), 1)
	}
	resp, err := s.deps.Runtime.ExecSync(ctx, call)
	if err != nil {
		return nil, err
	}
	return &podsyncv1.ExecSyncResponse{Stdout: head(resp.GetStdout()), Stderr: head(resp.GetStderr()), ExitCode: resp.GetExitCode()}, nil
}

func head(b []byte) []byte { return b[:min(len(b), mostOutput)] }

// mostProbeOutput is how much of an exec probe's output is shown, in bytes, and
// so how much is returned.
const mostProbeOutput = 10 << 10

// ExecProbe implements PodSyncService. The caller talks to servers of pods all
// day: it says which probe, and the spec says which command.
func (s *Server) ExecProbe(ctx context.Context, req *podsyncv1.ExecProbeRequest) (*podsyncv1.ExecProbeResponse, error) {
	key := keyOf(req.GetKey())
	t, ok := s.deps.Probes.Target(key)
	if !ok || t.Probe.Exec == nil {
		return nil, fmt.Errorf("%w: container %q of pod %s has no exec probe of type %v that is to be run now", rpcerr.ErrNotFound, key.Container, key.UID, req.GetKey().GetType())
	}
	if id := req.GetContainerId(); id != t.ContainerID {
		return nil, fmt.Errorf("%w: container %q of pod %s/%s runs as %s now, not as %s", rpcerr.ErrPrecondition, t.Container, t.Namespace, t.Name, t.ContainerID, id)
	}
	if len(t.Probe.Exec.Command) == 0 {
		return nil, fmt.Errorf("%w: the command of the %v probe of %s/%s:%s is empty, or %w", rpcerr.ErrInvalid, req.GetKey().GetType(), t.Namespace, t.Name, t.Container, env.ErrTooLarge)
	}
	timeout := max(t.Probe.TimeoutSeconds, 1)
	over := time.Duration(timeout) * time.Second
	ctx, cancel := context.WithTimeout(ctx, over+longestHold)
	defer cancel()
	look := s.lookAfter(ctx, over+promptly, t.ContainerID)
	resp, err := s.deps.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: t.ContainerID, Cmd: t.Probe.Exec.Command, Timeout: int64(timeout),
	})
	// Any other error, as when the runtime was restarted meanwhile, says itself.
	overdue := err != nil && (ctx.Err() != nil || errors.Is(rpcerr.FromStatus(err), rpcerr.ErrTimeout))
	if late, answers := look(overdue); late {
		of := fmt.Sprintf("the exec probe of %s/%s:%s", t.Namespace, t.Name, t.Container)
		if !answers {
			// A runtime that hangs says nothing about the container: that the command
			// has taken too long would be held against it.
			return nil, fmt.Errorf("%w: the runtime has not answered %s: %v", rpcerr.ErrInternal, of, err) //nolint:errorlint // its class is the call's, not the command's
		}
		// The command was killed, but what it has begun holds its output, for whose end
		// the runtime waits.
		return nil, fmt.Errorf("%w: %s took longer than %d s, and what it started goes on: %v", rpcerr.ErrTimeout, of, timeout, err) //nolint:errorlint // see above
	}
	if err != nil {
		return nil, err
	}
	output := resp.GetStdout()[:min(len(resp.GetStdout()), mostProbeOutput)]
	rest := mostProbeOutput - len(output)
	output = append(output[:len(output):len(output)], resp.GetStderr()[:min(len(resp.GetStderr()), rest)]...)
	return &podsyncv1.ExecProbeResponse{Output: output, ExitCode: resp.GetExitCode()}, nil
}

const (
	// promptly is how soon after a command's time is over a runtime has killed it
	// and says so.
	promptly = 2 * time.Second
	// longestHold is how long after that what the command left behind may hold its
	// output before the probe counts as failed; the kubelet's bound is as long.
	longestHold = 2 * time.Minute
	// lookFor bounds the question whether the runtime answers at all.
	lookFor = 5 * time.Second
)

// lookAfter has the runtime asked about a container when so much time has passed.
// The function that it returns, to be called once, ends that, or waits for the
// answer if it is needed, and says whether the runtime was asked and whether the
// answer was that the container runs.
func (s *Server) lookAfter(ctx context.Context, d time.Duration, id string) func(needed bool) (late, answers bool) {
	ctx, cancel := context.WithCancel(ctx)
	done, found := make(chan struct{}), false
	timer := time.AfterFunc(d, func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		resp, err := s.deps.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		found = err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
	return func(needed bool) (late, answers bool) {
		defer cancel()
		if timer.Stop() || !needed {
			return false, false
		}
		<-done
		return true, found
	}
}

// target finds the running container that a command is for.
func (s *Server) target(ctx context.Context, ref *podsyncv1.PodRef, name string, command []string) (podstate.ContainerRow, error) {
	if len(command) == 0 {
		return podstate.ContainerRow{}, fmt.Errorf("%w: the command is empty", rpcerr.ErrInvalid)
	}
	pod, err := s.find(ref)
	if err != nil {
		return podstate.ContainerRow{}, err
	}
	return s.running(ctx, pod, name)
}

// OpenExec implements PodSyncService.
func (s *Server) OpenExec(ctx context.Context, req *podsyncv1.OpenExecRequest) (*podsyncv1.OpenExecResponse, error) {
	_, url, err := s.openExec(ctx, req)
	if err != nil {
		return nil, err
	}
	return &podsyncv1.OpenExecResponse{Url: url}, nil
}

// openExec returns the container's id and the runtime's URL.
func (s *Server) openExec(ctx context.Context, req *podsyncv1.OpenExecRequest) (id, url string, err error) {
	c, err := s.target(ctx, req.GetPod(), req.GetContainer(), req.GetCommand())
	if err != nil {
		return "", "", err
	}
	o := req.GetStreams()
	if err := anyStream(o); err != nil {
		return "", "", err
	}
	resp, err := s.deps.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: c.ID, Cmd: req.GetCommand(), Tty: o.GetTty(),
		Stdin: o.GetStdin(), Stdout: o.GetStdout(), Stderr: o.GetStderr() && !o.GetTty(),
	})
	return c.ID, resp.GetUrl(), err
}

// OpenAttach implements PodSyncService.
func (s *Server) OpenAttach(ctx context.Context, req *podsyncv1.OpenAttachRequest) (*podsyncv1.OpenAttachResponse, error) {
	pod, err := s.find(req.GetPod())
	if err != nil {
		return nil, err
	}
	c, err := s.running(ctx, pod, req.GetContainer())
	if err != nil {
		return nil, err
	}
	o := req.GetStreams()
	if err := anyStream(o); err != nil {
		return nil, err
	}
	spec, _ := podutil.Container(pod.Pod, c.Name)
	tty := spec != nil && spec.TTY
	resp, err := s.deps.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: c.ID, Tty: tty, Stdin: o.GetStdin(), Stdout: o.GetStdout(), Stderr: o.GetStderr() && !tty,
	})
	if err != nil {
		return nil, err
	}
	return &podsyncv1.OpenAttachResponse{Url: resp.GetUrl()}, nil
}

func anyStream(o *podsyncv1.StreamOptions) error {
	if o.GetStdin() || o.GetStdout() || o.GetStderr() {
		return nil
	}
	return fmt.Errorf("%w: you must specify at least 1 of stdin, stdout, stderr", rpcerr.ErrInvalid)
}

// mostPorts is how many ports one session has: the runtime makes two channels for each, and
// a channel's number is a byte.
const mostPorts = 128

// OpenPortForward implements PodSyncService.
func (s *Server) OpenPortForward(ctx context.Context, req *podsyncv1.OpenPortForwardRequest) (*podsyncv1.OpenPortForwardResponse, error) {
	if n := len(req.GetPorts()); n > mostPorts {
		return nil, fmt.Errorf("%w: %d ports are too many for one session, which has %d: ask for several", rpcerr.ErrInvalid, n, mostPorts)
	}
	for _, port := range req.GetPorts() {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("%w: port %d is not between 1 and 65535", rpcerr.ErrInvalid, port)
		}
	}
	pod, err := s.find(req.GetPod())
	if err != nil {
		return nil, err
	}
	sandbox, ok := s.deps.Table.ReadySandbox(pod.Pod.UID)
	if !ok {
		return nil, fmt.Errorf("%w: pod %q has no ready sandbox", rpcerr.ErrPrecondition, pod.Pod.Name)
	}
	resp, err := s.deps.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.ID, Port: req.GetPorts()})
	if err != nil {
		return nil, err
	}
	return &podsyncv1.OpenPortForwardResponse{Url: resp.GetUrl()}, nil
}
