package csi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// wanted is a volume that a pod wants of a driver, wherever that is said: in the pod's
// own spec, or in a PersistentVolume.
type wanted struct {
	pod  *v1.Pod
	name string // the volume's in the pod's spec
	dir  string // the volume's place below the pod's directory
	data volumeData
	// label is with which SELinux label the pod has it, once that is settled.
	label selinux.Label

	// migrated: it is of before CSI; own: it is so in the pod's own spec.
	migrated, own bool
	// block: as a device.
	block      bool
	readOnly   bool
	fsType     string
	attributes map[string]string
	// modes are those of a PersistentVolume, and options its mount options.
	modes   []v1.PersistentVolumeAccessMode
	options []string
	// stageSecret, publishSecret and expandSecret are nil for none.
	stageSecret, publishSecret, expandSecret *v1.SecretReference
}

// wantedBy is what is asked for.
func (c *Volumes) wantedBy(r volume.Request) wanted {
	w := wanted{pod: r.Pod, name: r.Volume.Name, dir: r.Dir, migrated: r.Migrated}
	w.own = r.Migrated && r.Volume.PersistentVolumeClaim == nil && r.Volume.Ephemeral == nil
	if r.PV == nil {
		source := r.Volume.CSI
		w.data = ephemeral(r.Pod.UID, r.Volume.Name, source.Driver, c.cfg.NodeName)
		w.readOnly, w.attributes = isTrue(source.ReadOnly), source.VolumeAttributes
		w.modes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		if source.FSType != nil {
			w.fsType = *source.FSType
		}
		if ref := source.NodePublishSecretRef; ref != nil {
			w.publishSecret = &v1.SecretReference{Namespace: r.Pod.Namespace, Name: ref.Name}
		}
		return w
	}
	source := r.PV.Spec.CSI
	w.data = persistent(cmp.Or(r.Called, r.PV.Name), source.VolumeHandle, source.Driver, c.cfg.NodeName)
	w.readOnly, w.attributes, w.fsType = r.ReadOnly, source.VolumeAttributes, source.FSType
	w.block = r.PV.Spec.VolumeMode != nil && *r.PV.Spec.VolumeMode == v1.PersistentVolumeBlock
	w.modes, w.options = r.PV.Spec.AccessModes, r.PV.Spec.MountOptions
	w.stageSecret, w.publishSecret, w.expandSecret = source.NodeStageSecretRef, source.NodePublishSecretRef, source.NodeExpandSecretRef
	return w
}

func (w *wanted) id() volumeID { return w.data.id() }

// mostOfAHandle is how long a volume's handle may be, in bytes, for which the CSI spec has 128:
// it stands beside the volume, where so much is read (mostOfVolumeData), and in the Node object.
const mostOfAHandle = 4 << 10

// check refuses a volume whose handle has no end. A pod that has one already keeps it.
func (c *Volumes) check(w *wanted) error {
	if n := len(w.data.VolumeHandle); n > mostOfAHandle && !c.stands(w) {
		return podstate.VolumeAsSaid.Wrap(fmt.Errorf("%w: kubernetes.io/csi: the volume's handle has %d bytes, and %d may be; correct the PersistentVolume, or its driver %s", rpcerr.ErrInvalid, n, mostOfAHandle, w.data.DriverName))
	}
	return nil
}

// log says whose volume it is, and which.
func (w *wanted) log(ctx context.Context) klog.Logger {
	return klog.FromContext(ctx).WithValues("pod", klog.KObj(w.pod), "driver", w.data.DriverName, "volume", w.data.VolumeHandle)
}

// asking is ctx for calls of the driver.
func (w *wanted) asking(ctx context.Context) context.Context {
	return context.WithValue(ctx, migratedKey{}, w.migrated)
}

// keptMigrated is what is kept beside a staged volume of its being one of before CSI.
func (w *wanted) keptMigrated() string {
	if w.migrated {
		return isMigratedData
	}
	return ""
}

// persists says whether the volume outlives its pods.
func (w *wanted) persists() bool { return w.data.persists() }

// pv is what the PersistentVolume is called; empty for one in the pod's own spec.
func (w *wanted) pv() string {
	if !w.persists() {
		return ""
	}
	return w.data.SpecVolID
}

// capability is how the volume is to be used. The first access mode counts. group is nil
// when it is not the driver's to give the files to it.
func (w *wanted) capability(can peer.Abilities, group *int64) peer.Capability {
	as := peer.Capability{
		Mode: v1.ReadWriteOnce, Precise: can.SingleNodeMultiWriter, Block: w.block, FSType: w.fsType, Options: w.options, Group: group,
	}
	if len(w.modes) > 0 {
		as.Mode = w.modes[0]
	}
	if label := w.data.SELinuxMountContext; label != "" {
		as.Options = append(slices.Clone(w.options), selinux.MountOption(label))
	}
	return as
}

// forOneNode says whether only one node at a time may write: its pods' group may own the
// files then.
func (w *wanted) forOneNode() bool {
	for _, mode := range w.modes {
		if mode == v1.ReadWriteOnce || mode == v1.ReadWriteOncePod {
			return true
		}
	}
	return false
}

// persistent is what lies beside the volume of a claim.
func persistent(pv, handle, driver, node string) volumeData {
	return volumeData{
		SpecVolID: pv, VolumeHandle: handle, DriverName: driver, NodeName: node,
		AttachmentID: attachmentID(handle, driver, node), VolumeLifecycleMode: string(storagev1.VolumeLifecyclePersistent),
	}
}

// attachmentID is the name of the VolumeAttachment of a volume on a node.
func attachmentID(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}
