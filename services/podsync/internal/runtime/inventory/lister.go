package inventory

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Runtime is the runtime whose containers are found however many they are.
type Runtime struct {
	*cri.Client
	// PodsDir and PodLogsDir have a directory of each pod; see OnDisk.
	PodsDir, PodLogsDir string
	// Images lists the images.
	Images *Images
	// Spec is a pod that is known; nil when it is not.
	Spec func(uid types.UID) *v1.Pod
}

// ListImages lists the images; its error is a *Partial when some are missing.
func (r Runtime) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	return r.Images.List(ctx)
}

// ListContainers lists those of one pod, or all when uid is empty.
func (r Runtime) ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error) {
	if uid != "" {
		return r.Client.ListContainers(ctx, uid)
	}
	list, err := Containers(ctx, r.Client, func() ([]types.UID, error) { return OnDisk(r.PodsDir, r.PodLogsDir) })
	return append(list.Containers, standIns(list.TooLarge, r.Spec)...), err
}

// standIns stand for the containers of pods that are too large to be listed, by what
// their specs say: the images are in use.
func standIns(pods map[types.UID]error, spec func(types.UID) *v1.Pod) (out []*runtimeapi.Container) {
	for uid := range pods {
		pod := spec(uid)
		if pod == nil {
			continue
		}
		for _, name := range podutil.Images(pod) {
			out = append(out, &runtimeapi.Container{Image: &runtimeapi.ImageSpec{Image: name}})
		}
	}
	return out
}
