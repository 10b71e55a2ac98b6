package server

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
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
	missing := fmt.Errorf("%w: pod %q does not exist", rpcerr.ErrNotFound, ref.GetName())
	uid := types.UID(ref.GetUid())
	if uid == "" {
		if pod, ok := s.deps.Pods.ByName(ref.GetNamespace(), ref.GetName()); ok {
			return pod, nil
		}
		return podcache.Pod{}, missing
	}
	if s.deps.Mirrors != nil {
		if static, ok := s.deps.Mirrors.StaticUID(uid); ok {
			uid = static
		}
	}
	pod, ok := s.deps.Pods.Get(uid)
	if !ok || pod.Pod.Name != ref.GetName() || pod.Pod.Namespace != ref.GetNamespace() {
		return podcache.Pod{}, missing
	}
	return pod, nil
}

// running returns the running container of a pod. That it does not run is not
// "not found": the pod is there.
func (s *Server) running(pod podcache.Pod, name string) (podstate.ContainerRow, error) {
	c, ok := s.deps.Table.Running(pod.Pod.UID, name)
	if !ok {
		return podstate.ContainerRow{}, fmt.Errorf("%w: container not found (%q): it does not run now; kubectl describe pod %s shows its state",
			rpcerr.ErrPrecondition, name, pod.Pod.Name)
	}
	return c, nil
}

// inSpec says whether the pod has a container of this name, of any kind.
func inSpec(pod *v1.Pod, name string) bool {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}

// ttyOf says whether the container's spec asks for a terminal.
func ttyOf(pod *v1.Pod, name string) bool {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			return e.TTY
		}
	}
	return false
}

func refOf(uid types.UID, namespace, name string) *podsyncv1.PodRef {
	return &podsyncv1.PodRef{Namespace: namespace, Name: name, Uid: string(uid)}
}
