package execreaper

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Runtime notes the commands that probes and users run to their end, so that
// none of them is taken for one whose client has left.
type Runtime struct {
	cri.Raw
	Sessions *Book
}

// ExecSync implements server.Runtime.
func (r Runtime) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	defer r.Sessions.Begin(req.GetContainerId(), req.GetCmd()).End()
	return r.Raw.ExecSync(ctx, req)
}

// Hooks does the same for lifecycle handlers.
type Hooks struct {
	Client   *cri.Client
	Sessions *Book
}

// ExecSync implements hook.Execer.
func (h Hooks) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	defer h.Sessions.Begin(id, command).End()
	return h.Client.ExecSync(ctx, id, command, timeout)
}
