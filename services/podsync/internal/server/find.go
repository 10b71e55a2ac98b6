package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// find returns the pod that a client means. A client of the apiserver knows a
// static pod by its mirror's UID.
func (s *Server) find(ref *podsyncv1.PodRef) (podcache.Pod, error) {
	if ref.GetNamespace() == "" || ref.GetName() == "" {
		return podcache.Pod{}, fmt.Errorf("%w: name the pod's namespace and name", rpcerr.ErrInvalid)
	}
	uid := types.UID(ref.GetUid())
	if uid == "" {
		if pod, ok := s.deps.Pods.ByName(ref.GetNamespace(), ref.GetName()); ok {
			return pod, nil
		}
		return podcache.Pod{}, s.missing(ref)
	}
	if s.deps.Mirrors != nil {
		if static, ok := s.deps.Mirrors.StaticUID(uid); ok {
			uid = static
		}
	}
	pod, ok := s.deps.Pods.Get(uid)
	if !ok || pod.Pod.Name != ref.GetName() || pod.Pod.Namespace != ref.GetNamespace() {
		return podcache.Pod{}, s.missing(ref)
	}
	return pod, nil
}

// missing says that a pod is not there; before all sources of pods were heard nobody
// knows that it is not: after a restart while the apiserver is away, all pods of the
// apiserver run and none is known.
func (s *Server) missing(ref *podsyncv1.PodRef) error {
	if s.deps.State().SourcesReady.IsZero() {
		return fmt.Errorf("%w: pod %q is not known yet: since podsync started not all that tells it of pods was heard, the apiserver or manifests, polylet status shows why; what runs of the pod goes on meanwhile, and nobody probes it",
			rpcerr.ErrPrecondition, ref.GetName())
	}
	return fmt.Errorf("%w: pod %q does not exist", rpcerr.ErrNotFound, ref.GetName())
}

// running returns the running container of a pod. That it does not run is not
// "not found": the pod is there.
func (s *Server) running(ctx context.Context, pod podcache.Pod, name string) (podstate.ContainerRow, error) {
	c, ok := s.deps.Table.Running(pod.Pod.UID, name)
	if !ok && s.looked(ctx) {
		c, ok = s.deps.Table.Running(pod.Pod.UID, name)
	}
	if !ok {
		return podstate.ContainerRow{}, fmt.Errorf("%w: container not found (%q): it does not run now; kubectl describe pod %s shows its state",
			rpcerr.ErrPrecondition, name, pod.Pod.Name)
	}
	return c, nil
}

// lookTime is how long it is waited at most for what the runtime has, after a start.
const lookTime = 5 * time.Second

// looked waits until all that the runtime has was looked at since this process was started: of
// what runs nobody may say before that it does not. It says whether it has waited.
func (s *Server) looked(ctx context.Context) bool {
	select {
	case <-s.deps.Table.Whole():
		return false
	default:
	}
	late := time.NewTimer(lookTime)
	defer late.Stop()
	select {
	case <-s.deps.Table.Whole():
	case <-late.C:
	case <-ctx.Done():
	}
	return true
}

func refOf(uid types.UID, namespace, name string) *podsyncv1.PodRef {
	return &podsyncv1.PodRef{Namespace: namespace, Name: name, Uid: string(uid)}
}
