package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/runtime/logs"
)

// ReadLogs implements PodSyncService.
func (s *Server) ReadLogs(req *podsyncv1.ReadLogsRequest, stream grpc.ServerStreamingServer[podsyncv1.ReadLogsResponse]) error {
	options := &v1.PodLogOptions{}
	if err := options.Unmarshal(req.GetOptions()); err != nil {
		return fmt.Errorf("%w: options are not a v1.PodLogOptions: %w", rpcerr.ErrInvalid, err)
	}
	if err := logs.Validate(options); err != nil {
		return fmt.Errorf("%w: %w", rpcerr.ErrInvalid, err)
	}
	pod, err := s.find(req.GetPod())
	if err != nil {
		return err
	}
	name := req.GetContainer()
	if c, _ := podutil.Container(pod.Pod, name); c == nil {
		return fmt.Errorf("%w: container %q not found in pod %q", rpcerr.ErrNotFound, name, pod.Pod.Name)
	}
	which, err := choose(pod, name, options.Previous)
	if err != nil {
		return fmt.Errorf("%w: %w", rpcerr.ErrPrecondition, err)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	read := logs.Request{Path: s.logPath(pod, name, which), Options: options, Now: time.Now()}
	if options.Follow {
		read.Ended = s.ended(ctx, pod, which.id)
	}
	err = s.deps.Logs.Read(ctx, read, logWriter{stream})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the log of container %q in pod %q is not on the disk any more", rpcerr.ErrPrecondition, name, pod.Pod.Name)
	}
	return err
}

type logWriter struct {
	stream grpc.ServerStreamingServer[podsyncv1.ReadLogsResponse]
}

// Write implements io.Writer; the message is encoded before it returns.
func (w logWriter) Write(p []byte) (int, error) {
	if err := w.stream.Send(&podsyncv1.ReadLogsResponse{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// chosen is the container whose log is meant.
type chosen struct {
	id           string
	restartCount int32
}

// choose picks the container by its status; the error says why there is none.
// Source: v1.PodLogOptions, and the errors that kubectl logs shows of a kubelet.
func choose(pod podcache.Pod, name string, previous bool) (chosen, error) {
	cs := podutil.ContainerStatus(&pod.Status, name)
	if cs == nil {
		return chosen{}, fmt.Errorf("container %q in pod %q is not available", name, pod.Pod.Name)
	}
	last := cs.LastTerminationState.Terminated
	hasLast := last != nil && last.ContainerID != ""
	switch state := cs.State; {
	case previous && hasLast:
		return chosen{podutil.BareID(last.ContainerID), max(cs.RestartCount-1, 0)}, nil
	case previous:
		return chosen{}, fmt.Errorf("previous terminated container %q in pod %q not found", name, pod.Pod.Name)
	case state.Running != nil:
		return chosen{podutil.BareID(cs.ContainerID), cs.RestartCount}, nil
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		return chosen{podutil.BareID(state.Terminated.ContainerID), cs.RestartCount}, nil
	case hasLast:
		return chosen{podutil.BareID(last.ContainerID), cs.RestartCount}, nil
	case state.Terminated != nil:
		return chosen{}, fmt.Errorf("container %q in pod %q is terminated", name, pod.Pod.Name)
	case state.Waiting != nil:
		return chosen{}, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Pod.Name, waitReason(state.Waiting.Reason))
	default:
		return chosen{}, fmt.Errorf("container %q in pod %q is not available", name, pod.Pod.Name)
	}
}

func waitReason(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	default:
		return reason
	}
}

// logPath is where the container's log is: where the runtime says, else where
// it was told to write.
func (s *Server) logPath(pod podcache.Pod, name string, which chosen) string {
	if c, ok := s.deps.Table.Container(pod.Pod.UID, which.id); ok && c.LogPath != "" {
		return c.LogPath
	}
	if s.deps.LogPath == nil {
		return ""
	}
	return s.deps.LogPath(pod.Pod, name, which.restartCount)
}

// ended returns a channel that is closed when the container does not run any
// more; nil when it does not run now.
func (s *Server) ended(ctx context.Context, pod podcache.Pod, id string) <-chan struct{} {
	if c, ok := s.deps.Table.Container(pod.Pod.UID, id); !ok || c.State != podstate.StateRunning {
		return nil
	}
	done := make(chan struct{})
	sub := s.deps.Table.Subscribe(ctx)
	go func() {
		defer sub.Close()
		for {
			if c, ok := s.deps.Table.Container(pod.Pod.UID, id); !ok || c.State != podstate.StateRunning {
				close(done)
				return
			}
			if _, err := sub.Next(ctx); err != nil {
				return
			}
		}
	}()
	return done
}
