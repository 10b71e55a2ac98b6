package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/view"
)

// CheckpointContainer implements PodSyncService. The archive holds the memory
// of the container: only root may enter the directory that it lies in.
// Source: KEP-2008.
func (s *Server) CheckpointContainer(ctx context.Context, req *podsyncv1.CheckpointContainerRequest) (*podsyncv1.CheckpointContainerResponse, error) {
	timeout := req.GetTimeout().AsDuration()
	if timeout < 0 {
		return nil, fmt.Errorf("%w: the timeout is %s: it may not be less than 0", rpcerr.ErrInvalid, timeout)
	}
	pod, err := s.find(req.GetPod())
	if err != nil {
		return nil, err
	}
	name := req.GetContainer()
	if !inSpec(pod.Pod, name) {
		return nil, fmt.Errorf("%w: container %q not found in pod %q", rpcerr.ErrNotFound, name, pod.Pod.Name)
	}
	path := filepath.Join(s.deps.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar",
		pod.Pod.Name, pod.Pod.Namespace, name, time.Now().Format(time.RFC3339)))
	if err := s.checkpoint(ctx, pod, name, path, int64(timeout/time.Second)); err != nil {
		return nil, fmt.Errorf("%w: checkpointing of %s/%s/%s failed (%v)", rpcerr.ErrInternal, pod.Pod.Namespace, pod.Pod.Name, name, err) //nolint:errorlint // the runtime's code is not the caller's
	}
	return &podsyncv1.CheckpointContainerResponse{Path: path}, nil
}

func (s *Server) checkpoint(ctx context.Context, pod view.Pod, name, path string, seconds int64) error {
	c, err := s.running(pod, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.deps.CheckpointDir, 0o700); err != nil {
		return err
	}
	_, err = s.deps.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: c.ID, Location: path, Timeout: seconds})
	return err
}
