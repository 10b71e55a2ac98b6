package podsync

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
)

// heldRuntime notes the commands that probes and users run to their end, so that
// none of them is taken for one whose client has left.
type heldRuntime struct {
	cri.Raw
	sessions *execreaper.Book
}

// ExecSync implements server.Runtime.
func (h heldRuntime) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	defer h.sessions.Begin(req.GetContainerId(), req.GetCmd()).End()
	return h.Raw.ExecSync(ctx, req)
}

// heldHooks does the same for lifecycle handlers.
type heldHooks struct {
	runtime  *cri.Client
	sessions *execreaper.Book
}

// ExecSync implements hook.Execer.
func (h heldHooks) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	defer h.sessions.Begin(id, command).End()
	return h.runtime.ExecSync(ctx, id, command, timeout)
}

// containerRuns asks the runtime. A runtime may take a part of an id for the
// whole; this does not.
func (s *Service) containerRuns(ctx context.Context, id string) (bool, error) {
	status, err := s.runtime.ContainerStatus(ctx, id)
	if cri.IsNotFound(err) {
		return false, nil
	}
	return err == nil && status.GetId() == id && status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, err
}
