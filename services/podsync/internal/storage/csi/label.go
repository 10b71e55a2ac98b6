package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// labelled is with which SELinux label a pod has a volume.
type labelled struct {
	// wants is the label that it wants, if the driver can mount volumes with one, and is the
	// one that it has: of volumes that several pods may have it is only counted who wants
	// which. Empty for none.
	wants, is string
}

// label settles with which SELinux label a pod has a volume. stood: it is there already,
// with what before says. The caller has the volume's turn.
func (c *Volumes) label(ctx context.Context, st *state, w *wanted, object *storagev1.CSIDriver, before volumeData, stood bool) (labelled, error) {
	if !c.labels() || w.block {
		return labelled{}, nil
	}
	mounts := isTrue(object.Spec.SELinuxMount)
	acts := mounts && w.persists() && selinux.Acts(w.modes, c.cfg.SELinuxMount)
	wants, err := c.wantedLabel(st, w, mounts, acts)
	switch {
	case stood: // it is not mounted anew below who uses it
		return labelled{wants, before.SELinuxMountContext}, nil
	case err != nil && acts:
		return labelled{}, err
	case err != nil:
		klog.FromContext(ctx).V(4).Info("A volume would not be mounted with an SELinux label, if volumes of its access modes were", "pod", klog.KObj(w.pod), "volume", w.data.SpecVolID, "err", err)
		return labelled{}, nil
	case acts:
		return labelled{wants, wants}, nil
	}
	return labelled{wants: wants}, nil
}

// Conflict implements volume.Refuser: a pod that wants a volume with another label than the
// one that has it is told so.
func (c *Volumes) Conflict(ctx context.Context, r volume.Request) error {
	w := c.wantedBy(r)
	if !c.labels() || c.check(&w) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	object, err := c.object(ctx, &w)
	if err != nil {
		return nil // what is wrong with the driver is said to who may have the volume
	}
	st, leave := c.enterNow(w.id())
	if st == nil {
		return nil
	}
	defer leave()
	_, err = c.label(ctx, st, &w, object, volumeData{}, false)
	return err
}

// labels says whether the node has SELinux.
func (c *Volumes) labels() bool { return c.deps.SELinux != nil && c.deps.SELinux.Enabled() }

// wantedLabel is the label that a pod wants a volume to be mounted with, if its driver can
// do that (mounts); acts: what is wrong with it keeps the pod from having the volume.
func (c *Volumes) wantedLabel(st *state, w *wanted, mounts, acts bool) (string, error) {
	plugin, mode := w.shownPlugin(), w.shownMode()
	label, err := "", error(nil)
	if !selinux.Recursive(w.pod) {
		label, err = selinux.Of(c.deps.SELinux, w.pod, w.name)
	}
	several := new(selinux.Several)
	switch {
	case errors.As(err, &several):
		c.deps.Metrics.SELinuxPodMismatch(acts, mode)
		return "", err
	case err != nil:
		c.deps.Metrics.SELinuxContainerFailed(acts, mode)
		return "", err
	case !mounts:
		return "", nil
	}
	if other, differs := st.otherLabel(w.dir, label); differs {
		c.deps.Metrics.SELinuxVolumeMismatch(acts, plugin, mode)
		return "", fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", w.data.SpecVolID, other, label)
	}
	return label, nil
}

// otherLabel is one that another pod wants a volume with, and not this.
func (st *state) otherLabel(dir, label string) (other string, differs bool) {
	for at, l := range st.labels {
		if at != dir && l.wants != label && (!differs || l.wants < other) {
			other, differs = l.wants, true
		}
	}
	return other, differs
}

// hasLabel keeps with which label a pod has a volume that is published.
func (c *Volumes) hasLabel(st *state, w *wanted) {
	if len(st.labels) == 0 && w.label.wants != "" {
		c.deps.Metrics.SELinuxVolumeAdmitted(w.shownPlugin(), w.shownMode())
	}
	st.labels[w.dir] = w.label
}

// shownPlugin and shownMode are what the series of labels call a volume.
func (w *wanted) shownPlugin() string { return "kubernetes.io/csi/" + w.data.DriverName }

func (w *wanted) shownMode() string {
	if !w.persists() {
		return selinux.ShownMode(nil)
	}
	return selinux.ShownMode(w.modes)
}

// relabel has a volume unstaged that is staged with another label than a pod is to have it
// with, if no other pod has it. The caller has the volume's turn.
func (c *Volumes) relabel(ctx context.Context, st *state, w *wanted, stood bool) error {
	staged, err := readVolumeData(c.stagingDir(w.id()))
	if err != nil || stood || !c.labels() || staged.SELinuxMountContext == w.data.SELinuxMountContext {
		return nil // staging says what is wrong with it
	}
	others, err := c.othersHave(w)
	if err != nil {
		return asMountDevice(err)
	}
	if others {
		return &podstate.VolumeStep{Step: "MountVolume", Err: fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a different pod with a different SELinux label", w.data.SpecVolID)}
	}
	w.log(ctx).Info("A volume is unstaged, to be staged anew with another SELinux label")
	if err := c.unstage(ctx, st, w.id()); err != nil {
		return asMountDevice(err)
	}
	return nil
}

// othersHave says whether another pod has a volume, by what lies on the disk.
func (c *Volumes) othersHave(w *wanted) (bool, error) {
	pods := filepath.Join(c.cfg.RootDir, "pods")
	uids, err := names(pods)
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		all, damaged, err := dataBelow(filepath.Join(pods, uid, "volumes", "kubernetes.io~csi"))
		if err != nil {
			return false, err
		}
		for _, why := range damaged { // it may be this one
			return false, why
		}
		for dir, data := range all {
			if dir != w.dir && data.id() == w.id() {
				return true, nil
			}
		}
	}
	return false, nil
}
