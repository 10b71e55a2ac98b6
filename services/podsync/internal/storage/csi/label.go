package csi

import (
	"context"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// selinux is the node as its volumes are mounted with labels.
func (c *Volumes) selinux() selinux.Node {
	return selinux.Node{Policy: c.deps.SELinux, All: c.cfg.SELinuxMount, Counts: c.deps.Metrics}
}

// label settles with which SELinux label a pod has a volume. stood: it is there already,
// with what before says. The caller has the volume's turn.
func (c *Volumes) label(ctx context.Context, st *state, w *wanted, object *storagev1.CSIDriver, before volumeData, stood bool) (selinux.Label, error) {
	if w.block {
		return selinux.Label{}, nil
	}
	if kept, is := st.labels[w.dir]; is && stood { // it is counted once what it wants
		return kept, nil
	}
	want := w.byLabel()
	want.Mounts = isTrue(object.Spec.SELinuxMount)
	var stands *string
	if stood {
		stands = &before.SELinuxMountContext
	}
	return c.selinux().Choose(ctx, st.labels, want, stands)
}

// byLabel is the volume as one that may be mounted with a label.
func (w *wanted) byLabel() selinux.Want {
	want := selinux.Want{Pod: w.pod, Volume: w.name, Dir: w.dir, Called: w.data.SpecVolID, Plugin: "kubernetes.io/csi/" + w.data.DriverName}
	if w.persists() {
		want.Modes = w.modes
	}
	return want
}

// Conflict implements volume.Refuser: a pod that wants a volume with another label than the
// one that has it is told so.
func (c *Volumes) Conflict(ctx context.Context, r volume.Request) error {
	w := c.wantedBy(r)
	if !c.selinux().Enabled() || c.check(&w) != nil {
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

// relabel has a volume unstaged that is staged with another label than a pod is to have it
// with, if no other pod has it. The caller has the volume's turn.
func (c *Volumes) relabel(ctx context.Context, st *state, w *wanted, stood bool) error {
	staged, err := readVolumeData(c.stagingDir(w.id()))
	if err != nil || stood || !c.selinux().Enabled() || staged.SELinuxMountContext == w.data.SELinuxMountContext {
		return nil // staging says what is wrong with it
	}
	others, err := c.othersHave(w)
	if err != nil {
		return asMountDevice(err)
	}
	if others {
		return &podstate.VolumeStep{Step: "MountVolume", Err: selinux.Elsewhere(w.data.SpecVolID)}
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
