package selinux

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Counts count what becomes of volumes that could be mounted with labels.
type Counts interface {
	SELinuxContainerFailed(refused bool, mode string)
	SELinuxPodMismatch(refused bool, mode string)
	SELinuxVolumeMismatch(refused bool, plugin, mode string)
	SELinuxVolumeAdmitted(plugin, mode string)
}

// Node is one that mounts volumes with labels, if it has SELinux.
type Node struct {
	// Policy is the node's; nil is none.
	Policy Policy
	// All is the gate SELinuxMount: volumes of claims are mounted with labels whatever their
	// access modes.
	All    bool
	Counts Counts
}

// Want is a volume that a pod wants, as files.
type Want struct {
	Pod *v1.Pod
	// Volume is its name in the pod's spec, and Dir its place below the pod's directory.
	Volume, Dir string
	// Called is what errors call it, and Plugin what the metrics call what makes it.
	Called, Plugin string
	// Modes are those of a claim's volume; nil for one that is in the pod's own spec.
	Modes []v1.PersistentVolumeAccessMode
	// Mounts: what makes it can mount it with a label.
	Mounts bool
}

// Label is with which label a pod has a volume. Empty is none.
type Label struct {
	// Wants is the label that it wants, if the volume can be mounted with one, and Is the
	// one that it has: of volumes that several pods may have it is only counted who wants
	// which.
	Wants, Is string
}

// Labels are with which labels pods have one volume, by its places below their directories.
type Labels map[string]Label

// Enabled says whether the node has SELinux.
func (n Node) Enabled() bool { return n.Policy != nil && n.Policy.Enabled() }

// Choose settles with which label a pod gets a volume, beside pods that have it with labels;
// the error says why it is not to have it. With stands it has it already, with this label, and
// keeps it so: it is not mounted anew below who uses it.
func (n Node) Choose(ctx context.Context, has Labels, w Want, stands *string) (Label, error) {
	if !n.Enabled() {
		return Label{}, nil
	}
	acts := w.Mounts && Acts(w.Modes, n.All)
	wants, err := n.wanted(has, w, acts)
	switch {
	case stands != nil:
		return Label{wants, *stands}, nil
	case err != nil && acts:
		return Label{}, err
	case err != nil:
		klog.FromContext(ctx).V(4).Info("A volume would not be mounted with an SELinux label, if volumes of its access modes were", "pod", klog.KObj(w.Pod), "volume", w.Called, "err", err)
		return Label{}, nil
	case acts:
		return Label{wants, wants}, nil
	}
	return Label{Wants: wants}, nil
}

// wanted is the label that a pod wants a volume to be mounted with, if that can be done; acts:
// what is wrong with it keeps the pod from having the volume.
func (n Node) wanted(has Labels, w Want, acts bool) (string, error) {
	mode := ShownMode(w.Modes)
	label, err := "", error(nil)
	if !Recursive(w.Pod) {
		label, err = Of(n.Policy, w.Pod, w.Volume)
	}
	several := new(Several)
	switch {
	case errors.As(err, &several):
		n.Counts.SELinuxPodMismatch(acts, mode)
		return "", podstate.VolumeLabels.Wrap(err)
	case err != nil:
		n.Counts.SELinuxContainerFailed(acts, mode)
		return "", podstate.VolumeSpec.Wrap(err)
	case !w.Mounts:
		return "", nil
	}
	if other, differs := has.other(w.Dir, label); differs {
		n.Counts.SELinuxVolumeMismatch(acts, w.Plugin, mode)
		return "", podstate.VolumeLabels.Wrap(fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", w.Called, other, label))
	}
	return label, nil
}

// other is a label that another pod wants the volume with, and not this.
func (l Labels) other(dir, label string) (other string, differs bool) {
	for at, of := range l {
		if at != dir && of.Wants != label && (!differs || of.Wants < other) {
			other, differs = of.Wants, true
		}
	}
	return other, differs
}

// Keep keeps with which label a pod has a volume, once it has it.
func (n Node) Keep(has Labels, w Want, label Label) {
	if len(has) == 0 && label.Wants != "" {
		n.Counts.SELinuxVolumeAdmitted(w.Plugin, ShownMode(w.Modes))
	}
	has[w.Dir] = label
}

// Elsewhere says that a pod waits for a volume that is mounted with another label than it is to
// have it with, and that another pod has.
func Elsewhere(volume string) error {
	return podstate.VolumeLabels.Wrap(fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a different pod with a different SELinux label", volume))
}
