package csi

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/watch"
)

// uniquePrefix begins what Kubernetes calls a CSI driver's volume on a node.
const uniquePrefix = "kubernetes.io/csi/"

// uniqueName is what Kubernetes calls a volume on a node.
func uniqueName(id volumeID) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(uniquePrefix + id.driver + "^" + id.handle)
}

// inUse are the volumes that must stay attached to the node: those that pods want, from
// before anything of them is on the disk, and those of which something is, until the last
// of it is gone. What is told of a volume changes only once the Node shows what was told
// before: what the Node shows of it is then never from an earlier time. Safe for concurrent
// use.
type inUse struct {
	told *watch.Store[v1.UniqueVolumeName, struct{}]
	// known is closed once what is on the disk was looked at.
	known chan struct{}
	node  Node

	mu sync.Mutex
	// due is what is to be told of volumes when the Node shows what was told before.
	due map[v1.UniqueVolumeName]bool
	// wanted are the volumes that pods want, by pod, and whether they must be attached.
	wanted map[types.UID]map[volumeID]bool
	// changed is closed when the Node object changes.
	changed chan struct{}
}

func newInUse(epoch uint64, node Node) inUse {
	return inUse{
		node: node, due: map[v1.UniqueVolumeName]bool{},
		told:  watch.NewStore[v1.UniqueVolumeName, struct{}](epoch, func(struct{}, struct{}) bool { return true }),
		known: make(chan struct{}), changed: make(chan struct{}), wanted: map[types.UID]map[volumeID]bool{},
	}
}

// want says that a pod wants a volume; attached: only while it is attached to the node.
func (u *inUse) want(uid types.UID, id volumeID, attached bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wanted[uid] == nil {
		u.wanted[uid] = map[volumeID]bool{}
	}
	u.wanted[uid][id] = attached
	u.tellLocked(uniqueName(id), attached)
}

// tellLocked says whether a volume is in use, at once or when that may be said.
func (u *inUse) tellLocked(name v1.UniqueVolumeName, is bool) {
	_, told := u.told.Get(name)
	delete(u.due, name)
	switch {
	case told == is:
	case !u.shown(name, told):
		u.due[name] = is
	case is:
		u.told.Set(name, struct{}{})
	default:
		u.told.Delete(name)
	}
}

// shown says whether the Node shows of a volume what it was told. Before it was told
// anything it shows what a previous run has said.
func (u *inUse) shown(name v1.UniqueVolumeName, told bool) bool {
	select {
	case <-u.known:
	default:
		return true
	}
	node := u.node.Object()
	return told == (node != nil && slices.Contains(node.Status.VolumesInUse, name))
}

// isTold says whether the Node is told that a volume is in use.
func (u *inUse) isTold(name v1.UniqueVolumeName) bool {
	_, told := u.told.Get(name)
	return told
}

// forget drops a pod and returns what it wanted.
func (u *inUse) forget(uid types.UID) (ids []volumeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.wanted[uid] {
		ids = append(ids, id)
	}
	delete(u.wanted, uid)
	return ids
}

// isWanted says whether a pod wants a volume.
func (u *inUse) isWanted(id volumeID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.isWantedLocked(id)
}

func (u *inUse) isWantedLocked(id volumeID) bool {
	for _, ids := range u.wanted {
		if _, is := ids[id]; is {
			return true
		}
	}
	return false
}

// found says that something of a volume is on the disk: it is in use, unless it is known
// that it need not be attached.
func (u *inUse) found(id volumeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ids := range u.wanted {
		if attached, is := ids[id]; is && !attached {
			return
		}
	}
	u.tellLocked(uniqueName(id), true)
}

// free says that nothing of a volume is on the disk any more.
func (u *inUse) free(id volumeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.isWantedLocked(id) {
		u.tellLocked(uniqueName(id), false)
	}
}

// next is closed when the Node object changes.
func (u *inUse) next() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed
}

// NodeChanged tells that the Node object changed. It returns at once.
func (c *Volumes) NodeChanged() {
	c.inUse.mu.Lock()
	defer c.inUse.mu.Unlock()
	for name, is := range c.inUse.due {
		c.inUse.tellLocked(name, is)
	}
	close(c.inUse.changed)
	c.inUse.changed = make(chan struct{})
}

// InUse tells of the volumes that must stay attached to this node, and then of changes. It
// waits until all are known that a previous run has left.
func (c *Volumes) InUse(ctx context.Context) (*watch.Subscription[v1.UniqueVolumeName, struct{}], error) {
	select {
	case <-c.inUse.known:
		return c.inUse.told.Subscribe(ctx), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
