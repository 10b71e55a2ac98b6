package criconfig

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ownUsers says whether the pod asks for a user namespace of its own.
func ownUsers(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// userNamespace is the pod's user namespace for a handler; nil for the host's.
func (b *Builder) userNamespace(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(pod) {
		return nil, nil
	}
	if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
		return nil, errors.New("hostUsers: false cannot stand beside hostNetwork, hostPID or hostIPC; remove one of them")
	}
	supported := false
	if b.deps.Handlers != nil {
		supported = b.deps.Handlers()[handler].GetUserNamespaces()
	}
	switch {
	case !supported && handler != "":
		return nil, fmt.Errorf("RuntimeClass handler %q does not support user namespaces; use another RuntimeClass or remove hostUsers: false", handler)
	case !supported || b.deps.UserNamespaces == nil:
		return nil, errors.New("the container runtime does not support user namespaces (containerd does from 2.0 on, with runc 1.2); remove hostUsers: false")
	}
	m, err := b.deps.UserNamespaces.Mapping(pod.UID)
	if err != nil {
		return nil, err
	}
	ids := []*runtimeapi.IDMapping{{HostId: m.HostID, ContainerId: 0, Length: m.Length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}

// idmap makes the mounts idmapped, so that the owners of files are in the container
// those that they are on the disk. Those of image volumes carry the mapping too: the
// runtime maps a container's root filesystem itself, but mounts such a volume by this.
func idmap(mounts []*runtimeapi.Mount, users *runtimeapi.UserNamespace) {
	if users == nil {
		return
	}
	for _, m := range mounts {
		m.UidMappings, m.GidMappings = users.Uids, users.Gids
	}
}

// usersOf is the user namespace of the container's sandbox.
func (b *Builder) usersOf(ctx context.Context, r Request) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(r.Pod) {
		return nil, nil
	}
	handler, err := b.handler(ctx, r.Pod)
	if err != nil {
		return nil, err
	}
	return b.userNamespace(r.Pod, handler)
}
