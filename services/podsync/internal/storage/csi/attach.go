package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// asWaitForAttach says of an error that it is of the attachment, in the words that people
// know.
func asWaitForAttach(err error) error {
	return &podstate.VolumeStep{Step: podstate.WaitForAttach, Err: err}
}

// errNoController is why a node attaches nothing. A kubelet does not either, since CSI
// drivers' volumes are attached by what watches VolumeAttachments, which nodes may not make.
var errNoController = podstate.VolumeNoController.Wrap(errors.New("attaching volumes from the kubelet is not supported; set enableControllerAttachDetach to true, and the control plane attaches them"))

// Attach implements volume.Attacher: it tells that the volume is in use, so that nobody
// detaches it, and waits until the Node object shows that, and that it is attached.
// Source: https://github.com/kubernetes/design-proposals-archive/blob/main/storage/volume-provisioning.md
// and the words of Node.status.volumesInUse and volumesAttached.
func (c *Volumes) Attach(ctx context.Context, r volume.Request) error {
	w := c.wantedBy(r)
	if err := c.check(&w); err != nil {
		return asWaitForAttach(err)
	}
	for {
		said := c.inUse.driversSaid()
		object, err := c.object(ctx, &w)
		if err != nil {
			return asWaitForAttach(err)
		}
		needed, stands := needsAttachment(object), c.stands(&w)
		attached := stands && isAttached(c.deps.Node.Object(), uniqueName(w.id()))
		if needed && w.own {
			if err := c.inUse.addOwn(w.pod, uniqueName(w.id()), stands); err != nil {
				return asWaitForAttach(err)
			}
		}
		c.inUse.want(w.pod.UID, w.id(), needed || attached, c.deps.Node.Object)
		if !needed || stands {
			return nil // a previous run has waited for what stands
		}
		if c.cfg.NoController {
			return &podstate.VolumeStep{Step: "AttachVolume.Attach", Err: errNoController}
		}
		if again, err := c.awaitAttached(ctx, &w, said); !again {
			return err
		}
	}
}

// stands says whether a pod has a volume already.
func (c *Volumes) stands(w *wanted) bool {
	mounted, err := c.deps.Mounter.Mounted(filepath.Join(w.dir, mountName))
	return err == nil && mounted || w.block && isThere(w.dir)
}

// isAttached says whether a Node, which may be nil, says that a volume is attached to it.
func isAttached(node *v1.Node, name v1.UniqueVolumeName) bool {
	return node != nil && slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name })
}

// awaitAttached waits until a volume may be used. again: the cluster says something else
// of a driver meanwhile, which may be that its volumes need not be attached.
func (c *Volumes) awaitAttached(ctx context.Context, w *wanted, said <-chan struct{}) (again bool, err error) {
	for {
		changed := c.inUse.next()
		why, missing := c.notAttached(uniqueName(w.id()))
		if missing == nil {
			return false, nil
		}
		select {
		case <-changed:
		case <-said:
			return true, nil
		case <-ctx.Done():
			if c.noRoom(ctx, w) {
				why, missing = podstate.VolumeNoRoom, fmt.Errorf("%w: %w", podstate.ErrNoRoomToAttach, missing)
			}
			return false, asWaitForAttach(why.Wrap(fmt.Errorf("%w: %w", missing, context.Cause(ctx))))
		}
	}
}

// needsAttachment says whether volumes of a driver are attached to nodes. So are those of
// one that the cluster says nothing of.
func needsAttachment(object *storagev1.CSIDriver) bool {
	return object.Spec.AttachRequired == nil || *object.Spec.AttachRequired
}

// notAttached says what the Node object does not show yet of a volume, and of what kind that
// is; nil when it may be used.
func (c *Volumes) notAttached(name v1.UniqueVolumeName) (podstate.VolumeCause, error) {
	told := c.inUse.isTold(name) // before the Node is looked at: an older one may name it from earlier
	node := c.deps.Node.Object()
	switch {
	case node == nil:
		return podstate.VolumeNodeUnread, errors.New("this node's object has not been read yet")
	case !told || !inNode(node, name):
		return podstate.VolumeNotTold, fmt.Errorf("volume %s has not been added to the list of VolumesInUse in the node's volume status", name)
	case !isAttached(node, name):
		why, who := podstate.VolumeNotAttached, "the attach-detach controller and the driver's external-attacher attach it"
		if isDisk(name) {
			why, who = podstate.VolumeDiskNotAttached, "the attach-detach controller says when it may be used here"
		}
		return why, fmt.Errorf("volume %s is not attached according to node status; %s", name, who)
	}
	return podstate.VolumeUnknown, nil
}

// attachment is what the attachment of a volume says to those who publish it; nil when
// it is none that is attached to nodes.
func (c *Volumes) attachment(ctx context.Context, w *wanted, object *storagev1.CSIDriver) (map[string]string, error) {
	if !needsAttachment(object) {
		return nil, nil
	}
	id, handle := w.data.AttachmentID, w.data.VolumeHandle
	a, err := c.deps.Objects.VolumeAttachment(ctx, w.pod.UID, w.pod.Namespace, id)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, asWaitForAttach(volume.FromCluster(fmt.Errorf(getError, handle, id, err)))
	case err != nil:
		err = fmt.Errorf(getError, handle, id, err)
	case a.DeletionTimestamp != nil:
		err = errors.New("volume attachment is being deleted")
	case a.Status.Attached:
		return a.Status.AttachmentMetadata, nil
	case a.Status.AttachError != nil:
		err = errors.New(a.Status.AttachError.Message)
	default:
		err = fmt.Errorf("volume %s is not attached for volume attachment %s", handle, id)
	}
	return nil, asWaitForAttach(podstate.VolumeNotAttached.Wrap(err))
}

const getError = "volume %s has GET error for volume attachment %s: %w"
