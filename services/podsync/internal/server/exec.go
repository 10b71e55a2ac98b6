package server

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/view"
)

// mostOutput is how much of each of a command's two outputs is returned, in bytes.
const mostOutput = 16 << 20

// ExecSync implements PodSyncService.
func (s *Server) ExecSync(ctx context.Context, req *podsyncv1.ExecSyncRequest) (*podsyncv1.ExecSyncResponse, error) {
	c, err := s.target(req.GetPod(), req.GetContainer(), req.GetCommand())
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

// target finds the running container that a command is for.
func (s *Server) target(ref *podsyncv1.PodRef, name string, command []string) (view.Container, error) {
	if len(command) == 0 {
		return view.Container{}, fmt.Errorf("%w: the command is empty", rpcerr.ErrInvalid)
	}
	pod, err := s.find(ref)
	if err != nil {
		return view.Container{}, err
	}
	return s.running(pod, name)
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
	c, err := s.target(req.GetPod(), req.GetContainer(), req.GetCommand())
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
	c, err := s.running(pod, req.GetContainer())
	if err != nil {
		return nil, err
	}
	o := req.GetStreams()
	if err := anyStream(o); err != nil {
		return nil, err
	}
	tty := ttyOf(pod.Pod, c.Name)
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

// OpenPortForward implements PodSyncService.
func (s *Server) OpenPortForward(ctx context.Context, req *podsyncv1.OpenPortForwardRequest) (*podsyncv1.OpenPortForwardResponse, error) {
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
