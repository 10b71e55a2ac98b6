// Package claims says whether a pod may use the volume that one of its claims is bound
// to, and how.
//
// It owns the rules of claims (PersistentVolumeClaim) and of the volumes bound to them
// (PersistentVolume), in the kubelet's words. It is pure: it must never read an object,
// a file or the clock.
package claims

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	volumehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Reference is how a volume of a pod names a claim; that of a volume of before CSI names
// none.
type Reference struct {
	Namespace, Name string
	// ReadOnly: the pod only reads it, whatever its containers' mounts say.
	ReadOnly bool
	// Ephemeral: the claim was made for this volume of this pod, which must own it.
	Ephemeral bool
}

// Of is the claim that a volume names; false when it names none and is not InTree.
func Of(pod *v1.Pod, v *v1.Volume) (Reference, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return Reference{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName, ReadOnly: v.PersistentVolumeClaim.ReadOnly}, true
	case v.Ephemeral != nil:
		return Reference{Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v), Ephemeral: true}, true
	case InTree(v):
		return Reference{ReadOnly: podutil.ReadOnly(v)}, true
	}
	return Reference{}, false
}

// Failed says of an error that it is of the claim.
func (r Reference) Failed(err error) error {
	return fmt.Errorf("error processing PVC %s/%s: %w", r.Namespace, r.Name, err)
}

// protected is the finalizer that keeps a deleted claim while pods use it.
const protected = "kubernetes.io/pvc-protection"

// Check says why the pod cannot use the claim now; nil when it can.
func (r Reference) Check(pod *v1.Pod, claim *v1.PersistentVolumeClaim) error {
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protected):
		return podstate.VolumeClaimEnding.Wrap(r.Failed(errors.New("PVC is being deleted")))
	case claim.Status.Phase != v1.ClaimBound:
		return podstate.VolumeNotBound.Wrap(r.Failed(errors.New("PVC is not bound")))
	case claim.Spec.VolumeName == "":
		return podstate.VolumeNotBound.Wrap(r.Failed(errors.New("PVC has empty pvc.Spec.VolumeName")))
	case r.Ephemeral:
		return podstate.VolumeOthersPod.Wrap(ephemeral.VolumeIsForPod(pod, claim))
	}
	return nil
}

// CheckVolume says why a volume is not the claim's; nil when it is.
func (r Reference) CheckVolume(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	switch of := pv.Spec.ClaimRef; {
	case of == nil:
		return podstate.VolumeNotBound.Wrap(r.Failed(fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)))
	case of.UID != claim.UID:
		return podstate.VolumeOthersClaim.Wrap(r.Failed(fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name, of.UID, claim.UID)))
	}
	return nil
}

// CheckMode says why containers cannot use a volume as they name it, as a filesystem or
// as a device; nil when they can.
func CheckMode(pod *v1.Pod, volume string, pv *v1.PersistentVolume) error {
	mode := v1.PersistentVolumeFilesystem
	if pv.Spec.VolumeMode != nil {
		mode = *pv.Spec.VolumeMode
	}
	mounted, asDevice := uses(pod, volume)
	switch {
	case mounted && mode != v1.PersistentVolumeFilesystem:
		return podstate.VolumeMode.Wrap(fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", volume, mode))
	case asDevice && mode != v1.PersistentVolumeBlock:
		return podstate.VolumeMode.Wrap(fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", volume, mode))
	}
	return nil
}

// Used are the volumes that a container of the pod names: what none does is not set up.
func Used(pod *v1.Pod) map[string]bool {
	names := make(map[string]bool, len(pod.Spec.Volumes))
	for _, c := range podutil.Containers(pod) {
		for i := range c.VolumeMounts {
			names[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			names[c.VolumeDevices[i].Name] = true
		}
	}
	return names
}

// uses says how containers name a volume.
func uses(pod *v1.Pod, volume string) (mounted, asDevice bool) {
	for _, c := range podutil.Containers(pod) {
		mounted = mounted || slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
		asDevice = asDevice || slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume })
	}
	return mounted, asDevice
}

// CheckNode says why a volume cannot be used on a node with these labels; nil when it can.
func CheckNode(pv *v1.PersistentVolume, labels map[string]string) error {
	err := volumehelpers.CheckNodeAffinity(pv, labels)
	if err == nil {
		return nil
	}
	step := "MountVolume.NodeAffinity check"
	if IsDevice(pv) {
		step = podstate.MapNodeAffinity
	}
	return podstate.VolumeOtherNode.Wrap(&podstate.VolumeStep{Step: step, Err: err})
}

// ErrInUse says that another pod uses a volume that only one may use.
var ErrInUse = podstate.VolumeInUse.Wrap(errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod"))

// ForOnePod says whether only one pod at a time may use a volume: its only access mode
// says so. When there are several, nobody knows which one a pod means.
func ForOnePod(pv *v1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == v1.ReadWriteOncePod
}

// Group is the group whose members may use a volume, as who made it noted; false for none.
func Group(pv *v1.PersistentVolume) (int64, bool) {
	group, err := strconv.ParseInt(pv.Annotations["pv.beta.kubernetes.io/gid"], 10, 64)
	return group, err == nil
}

// MountOptions are those that a volume asks for; the annotation comes before the field.
func MountOptions(pv *v1.PersistentVolume) []string {
	list := pv.Spec.MountOptions
	if text, has := pv.Annotations[v1.MountOptionAnnotation]; has {
		list = strings.Split(text, ",")
	}
	list = slices.DeleteFunc(slices.Clone(list), func(o string) bool { return o == "" })
	slices.Sort(list)
	return slices.Compact(list)
}

// CheckNoOptions refuses mount options of a volume that nothing is mounted for.
func CheckNoOptions(pv *v1.PersistentVolume) error {
	if len(MountOptions(pv)) == 0 {
		return nil
	}
	return podstate.VolumeOptions.Wrap(&podstate.VolumeStep{Step: "MountVolume.MountOptionSupport check", Err: errors.New("mount options are not supported for this volume type")})
}
