package csi

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Disks are volumes of no driver that are attached to the node all the same, in name: the
// controller of the control plane sees to it that one which only one node may write is not
// given to two. *scsi.Volumes has it.
type Disks interface {
	// Left are those of which something is on the node.
	Left() ([]v1.UniqueVolumeName, error)
	// Settle takes one from the node, if no pod has it; left says that one has.
	Settle(ctx context.Context, name v1.UniqueVolumeName) (left bool, err error)
}

// diskID names one of Disks, which has no driver.
func diskID(name v1.UniqueVolumeName) volumeID { return volumeID{handle: string(name)} }

// isDisk says whether a volume of a Node is of a kind that Disks are.
func isDisk(name v1.UniqueVolumeName) bool {
	return strings.HasPrefix(string(name), "kubernetes.io/iscsi/") || strings.HasPrefix(string(name), "kubernetes.io/fc/")
}

// Hold tells that a pod wants one of Disks, and waits until the Node object shows that it is
// in use, and attached. own: the pod's own spec has it; stands: the pod has it from a
// previous run, which has waited.
func (c *Volumes) Hold(ctx context.Context, pod *v1.Pod, name v1.UniqueVolumeName, own, stands bool) error {
	if own {
		if err := c.inUse.addOwn(pod, name, stands); err != nil {
			return err
		}
	}
	c.inUse.want(pod.UID, diskID(name), true, c.deps.Node.Object)
	if stands || c.cfg.NoController || c.cfg.Standalone {
		return nil
	}
	for {
		changed := c.inUse.next()
		why, missing := c.notAttached(name)
		if missing == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return why.Wrap(fmt.Errorf("%w: %w", missing, context.Cause(ctx)))
		}
	}
}

// SettleSoon has one of Disks taken from the node when no pod has it. It returns at once.
func (c *Volumes) SettleSoon(name v1.UniqueVolumeName) { c.settleSoon(diskID(name)) }

// settleDisk takes one of Disks from the node, and tells that it may be detached. The caller
// has its turn, and has looked whether a pod wants it.
func (c *Volumes) settleDisk(ctx context.Context, id volumeID) error {
	if c.deps.Disks != nil {
		if left, err := c.deps.Disks.Settle(ctx, v1.UniqueVolumeName(id.handle)); left || err != nil {
			return err
		}
	}
	c.inUse.free(id, c.deps.Node.Object)
	return nil
}

// disksLeft are those of Disks that a previous run has left.
func (c *Volumes) disksLeft() (ids []volumeID, err error) {
	if c.deps.Disks == nil {
		return nil, nil
	}
	names, err := c.deps.Disks.Left()
	for _, name := range names {
		ids = append(ids, diskID(name))
	}
	return ids, err
}
