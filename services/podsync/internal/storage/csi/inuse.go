package csi

import (
	"context"
	"maps"
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
	if id.driver == "" { // see Disks
		return v1.UniqueVolumeName(id.handle)
	}
	return v1.UniqueVolumeName(uniquePrefix + id.driver + "^" + id.handle)
}

// inUse are the volumes that must stay attached to the node: those that pods want, from
// before anything of them is on the disk, and those of which something is, until the last
// of it is gone. Safe for concurrent use.
//
// Who writes them into the Node does so a moment after he is told, and others detach what
// the Node does not name. So a volume that is in use again is told only once the Node was
// seen without it, and one that is in use no more once the Node was seen with it: what the
// Node shows after that is what was told last.
type inUse struct {
	told *watch.Store[v1.UniqueVolumeName, struct{}]
	// known is closed once what is on the disk was looked at.
	known chan struct{}

	mu sync.Mutex
	// wanted are the volumes that pods want, by pod, and whether they must be attached.
	wanted map[types.UID]map[volumeID]bool
	// own are those of pods' own specs, by pod, and lacksRoom the pods of which one was too
	// many.
	own       map[types.UID]*own
	lacksRoom map[types.UID]struct{}
	// left are those that a previous run has left, on the disk or in the Node, until it is
	// known that nothing of them is there: pods may have them that have not asked yet.
	left map[v1.UniqueVolumeName]bool
	// leaving are those of which it was told that they are in use no more, and that the
	// Node may name still; ending those of which that is told once the Node names them.
	leaving, ending map[v1.UniqueVolumeName]bool
	// inherited: what the Node named at first was looked at.
	inherited bool
	// changed is closed when the Node object changes, and said when what the cluster says
	// of a driver may have.
	changed, said chan struct{}
}

func newInUse(epoch uint64) inUse {
	return inUse{
		told:  watch.NewStore[v1.UniqueVolumeName, struct{}](epoch, func(struct{}, struct{}) bool { return true }),
		known: make(chan struct{}), changed: make(chan struct{}), said: make(chan struct{}), wanted: map[types.UID]map[volumeID]bool{}, own: map[types.UID]*own{}, lacksRoom: map[types.UID]struct{}{},
		left: map[v1.UniqueVolumeName]bool{}, leaving: map[v1.UniqueVolumeName]bool{}, ending: map[v1.UniqueVolumeName]bool{},
	}
}

// want says that a pod wants a volume; attached: only while it is attached to the node, as
// what a previous run has left attached stays, of which another pod may ask only later.
// object is the Node as it is known; see free.
func (u *inUse) want(uid types.UID, id volumeID, attached bool, object func() *v1.Node) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wanted[uid] == nil {
		u.wanted[uid] = map[volumeID]bool{}
	}
	name, node := uniqueName(id), object()
	u.wanted[uid][id] = attached || u.left[name] && isAttached(node, name)
	if u.isAttachedLocked(name) {
		u.tellLocked(name) // also for one that has it from before its driver needed no attachment
		return
	}
	u.dropLocked(name, node)
}

// tellLocked tells that a volume is in use, now or once the Node was seen without it.
func (u *inUse) tellLocked(name v1.UniqueVolumeName) {
	delete(u.ending, name)
	if !u.leaving[name] {
		u.told.Set(name, struct{}{})
	}
}

// isTold says whether it was told that a volume is in use.
func (u *inUse) isTold(name v1.UniqueVolumeName) bool {
	_, told := u.told.Get(name)
	return told
}

// forget drops a pod and returns what it wanted, and the pods for which it may have made
// room.
func (u *inUse) forget(uid types.UID) (ids []volumeID, mayTry []types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.wanted[uid] {
		ids = append(ids, id)
	}
	delete(u.wanted, uid)
	delete(u.lacksRoom, uid)
	if u.own[uid] != nil {
		delete(u.own, uid)
		mayTry = slices.Collect(maps.Keys(u.lacksRoom))
		clear(u.lacksRoom)
	}
	return ids, mayTry
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
	u.foundLocked(id)
}

func (u *inUse) foundLocked(id volumeID) {
	u.left[uniqueName(id)] = true
	for _, ids := range u.wanted {
		if attached, is := ids[id]; is && !attached {
			return
		}
	}
	u.tellLocked(uniqueName(id))
}

// keepLocked has all pods that want a volume want it while it is attached.
func (u *inUse) keepLocked(id volumeID) {
	for _, ids := range u.wanted {
		if _, is := ids[id]; is {
			ids[id] = true
		}
	}
}

// free says that nothing of a volume is on the disk any more. object is the Node as it is
// known; nil before it is. It is asked under the lock: what is seen is never older than
// what was seen before.
func (u *inUse) free(id volumeID, object func() *v1.Node) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.isWantedLocked(id) {
		delete(u.left, uniqueName(id))
		u.dropLocked(uniqueName(id), object())
	}
}

// dropLocked has a volume be in use no more.
func (u *inUse) dropLocked(name v1.UniqueVolumeName, node *v1.Node) {
	switch {
	case !u.isTold(name):
	case node == nil: // nobody has been told yet
		u.told.Delete(name)
	case inNode(node, name):
		u.endLocked(name)
	default:
		u.ending[name] = true // it may be on its way into the Node
	}
}

func (u *inUse) endLocked(name v1.UniqueVolumeName) {
	u.told.Delete(name)
	u.leaving[name] = true
}

// inNode says whether a Node says that a volume is in use.
func inNode(node *v1.Node, name v1.UniqueVolumeName) bool {
	return slices.Contains(node.Status.VolumesInUse, name)
}

// see goes by what the Node names now; see free.
func (u *inUse) see(object func() *v1.Node) {
	u.mu.Lock()
	defer u.mu.Unlock()
	node := object()
	if node == nil {
		return
	}
	for name := range u.ending {
		if inNode(node, name) {
			delete(u.ending, name)
			u.endLocked(name)
		}
	}
	for name := range u.leaving {
		if !inNode(node, name) {
			delete(u.leaving, name)
			if u.isAttachedLocked(name) { // a pod has come to want it meanwhile
				u.tellLocked(name)
			}
		}
	}
}

// isAttachedLocked says whether a pod wants a volume only while it is attached.
func (u *inUse) isAttachedLocked(name v1.UniqueVolumeName) bool {
	for _, ids := range u.wanted {
		for id, attached := range ids {
			if attached && uniqueName(id) == name {
				return true
			}
		}
	}
	return false
}

// next is closed when the Node object changes.
func (u *inUse) next() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed
}

// driversSaid is closed when what the cluster says of a driver may have changed.
func (u *inUse) driversSaid() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said
}

// driverSaid has those who wait for an attachment look again whether they need one.
func (u *inUse) driverSaid() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.said)
	u.said = make(chan struct{})
}

// NodeChanged tells that the Node object changed. It returns at once.
func (c *Volumes) NodeChanged() {
	c.inUse.see(c.deps.Node.Object)
	c.inUse.mu.Lock()
	defer c.inUse.mu.Unlock()
	close(c.inUse.changed)
	c.inUse.changed = make(chan struct{})
}

// InUse tells of the volumes that must stay attached to this node, and then of changes. It
// waits until all are known that a previous run has left, on the disk and in the Node.
func (c *Volumes) InUse(ctx context.Context) (*watch.Subscription[v1.UniqueVolumeName, struct{}], error) {
	select {
	case <-c.inUse.known:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		changed := c.inUse.next()
		if node := c.deps.Node.Object(); node != nil {
			c.inherit(node)
			return c.inUse.told.Subscribe(ctx), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// inherit has what the Node names at first be in use until it is known that no pod wants
// it: else it would be told, and written, that it is in use no more, while a pod that wants
// it finds it in the Node. Nobody is told of anything before all of it is in use.
func (c *Volumes) inherit(node *v1.Node) {
	ids := ofDrivers(node.Status.VolumesInUse)
	if c.inUse.foundFirst(ids, node) {
		for _, id := range ids {
			c.settleSoon(id)
		}
	}
}

// foundFirst is found of all that the Node names at first; false if that was done. What is
// attached to it stays so for the pods that have it, also when its driver needs no
// attachment any more.
func (u *inUse) foundFirst(ids []volumeID, node *v1.Node) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.inherited {
		return false
	}
	u.inherited = true
	for _, id := range ids {
		if isAttached(node, uniqueName(id)) {
			u.keepLocked(id)
		}
		u.foundLocked(id)
	}
	return true
}
