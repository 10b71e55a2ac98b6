package csi

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// The Node object names each volume that is in use on the node, and once more when it is
// attached, and takes 1.5 MiB at most. Of claims' volumes there are as many as the cluster has
// made; those in pods' own specs cost whoever makes pods a line. A Node that is too large is
// not written any more: nothing of its state, and no pod's volume that waits to be in use.
const (
	// mostOwnName is how long the name of a volume of a pod's own spec may be, in bytes.
	mostOwnName = 512
	// mostOwnOfPod, mostOwnOfNamespace and mostOwn are how many such volumes there may be, of
	// those that have to be attached.
	mostOwnOfPod, mostOwnOfNamespace, mostOwn = 64, 256, 1024
)

// own are the volumes of a pod's own spec that have to be attached.
type own struct {
	namespace string
	names     map[v1.UniqueVolumeName]struct{}
}

// addOwn counts a volume of a pod's own spec, or says why it is one too many. stands: the pod
// has it from a previous run, which has counted.
func (u *inUse) addOwn(pod *v1.Pod, name v1.UniqueVolumeName, stands bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.own[pod.UID]
	if of == nil {
		of = &own{pod.Namespace, map[v1.UniqueVolumeName]struct{}{}}
	}
	if _, counted := of.names[name]; !counted && !stands {
		if err := u.roomForOwnLocked(pod, name); err != nil {
			if errors.Is(err, rpcerr.ErrExhausted) {
				u.lacksRoom[pod.UID] = struct{}{}
			}
			return err
		}
	}
	of.names[name] = struct{}{}
	u.own[pod.UID] = of
	return nil
}

func (u *inUse) roomForOwnLocked(pod *v1.Pod, name v1.UniqueVolumeName) error {
	if len(name) > mostOwnName {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("%w: the volume's name in the Node object would be %d bytes long, and %d may be; correct the volume", rpcerr.ErrInvalid, len(name), mostOwnName))
	}
	all, namespace := 0, 0
	for _, of := range u.own {
		all += len(of.names)
		if of.namespace == pod.Namespace {
			namespace += len(of.names)
		}
	}
	inPod := 0
	if of := u.own[pod.UID]; of != nil {
		inPod = len(of.names)
	}
	for _, c := range []struct {
		whose     string
		has, most int
	}{{"the pod", inPod, mostOwnOfPod}, {"the pods of namespace " + pod.Namespace, namespace, mostOwnOfNamespace}, {"all pods", all, mostOwn}} {
		if c.has >= c.most {
			return podstate.VolumeAsSaid.Wrap(fmt.Errorf("%w: %s on this node would have more than %d volumes in their own specs that have to be attached, and the Node object has to name each; use claims for them", rpcerr.ErrExhausted, c.whose, c.most))
		}
	}
	return nil
}
