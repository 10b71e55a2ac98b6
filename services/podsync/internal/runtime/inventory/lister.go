package inventory

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Runtime is the runtime whose containers are found however many they are.
type Runtime struct {
	*cri.Client
	// PodsDir and PodLogsDir have a directory of each pod; see OnDisk.
	PodsDir, PodLogsDir string
}

// ListContainers lists those of one pod, or all when uid is empty.
func (r Runtime) ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error) {
	if uid != "" {
		return r.Client.ListContainers(ctx, uid)
	}
	return Containers(ctx, r.Client, func() ([]types.UID, error) { return OnDisk(r.PodsDir, r.PodLogsDir) })
}
