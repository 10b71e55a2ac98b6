package scsi

import (
	"context"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// selinux is the node as its disks are mounted with labels.
func (v *Volumes) selinux() selinux.Node {
	return selinux.Node{Policy: v.deps.SELinux, All: v.cfg.SELinuxMount, Counts: v.deps.Metrics}
}

// byLabel is the volume as one that may be mounted with a label: each disk's filesystem can be.
func (w *wanted) byLabel() selinux.Want {
	return selinux.Want{Pod: w.pod, Volume: w.name, Dir: w.dir, Called: w.called, Plugin: "kubernetes.io/" + w.disk.kind(), Modes: w.modes, Mounts: true}
}

// mountLabelled mounts a disk's filesystem for a pod, with the SELinux label that it is to have
// it with, and says whether that is one. The caller has the place's turn.
func (v *Volumes) mountLabelled(ctx context.Context, w *wanted, p place) (bool, error) {
	stood, err := v.deps.Mounter.Mounted(w.dir)
	if err != nil {
		return false, err
	}
	label, err := v.label(ctx, w, p, stood)
	if err != nil {
		return false, err
	}
	p.label = label.Is
	if !stood {
		if err := v.relabel(ctx, w, p); err != nil {
			return false, err
		}
	}
	if err := v.mount(ctx, w, p, stood); err != nil {
		return false, err
	}
	v.keepLabel(w, p, label)
	return label.Is != "", nil
}

// label settles with which SELinux label a pod has a disk's filesystem. stood: it has it already.
func (v *Volumes) label(ctx context.Context, w *wanted, p place, stood bool) (selinux.Label, error) {
	if !v.selinux().Enabled() {
		return selinux.Label{}, nil
	}
	var stands *string
	if stood {
		if kept, is := v.labelKept(w, p); is { // it is counted once what it wants
			return kept, nil
		}
		is, err := v.labelOf(w, p, w.dir)
		if err != nil {
			return selinux.Label{}, err
		}
		stands = &is
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.selinux().Choose(ctx, v.labels[p.path], w.byLabel(), stands)
}

// labelKept is with which label a pod has a disk's filesystem, if this process has settled that.
func (v *Volumes) labelKept(w *wanted, p place) (label selinux.Label, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	label, is = v.labels[p.path][w.dir]
	return label, is
}

// labelOf is with which label a disk's filesystem is mounted at a path. That the kernel knows,
// whatever was mounted there before; its place's record has how it was asked for, where it is the
// same. One that the PersistentVolume's own options name is no pod's.
func (v *Volumes) labelOf(w *wanted, p place, at string) (string, error) {
	kept := ""
	if r, is := v.recordAt(p.path); is {
		kept = r.SELinuxMountContext
	}
	if slices.ContainsFunc(w.options, func(o string) bool { return strings.HasPrefix(o, "context=") }) {
		return kept, nil
	}
	is, err := v.deps.Context(at)
	if err != nil || selinux.Same(is, kept) {
		return kept, err
	}
	return is, nil
}

// relabel unmounts a disk's filesystem from its place that is mounted there with another label
// than a pod is to have it with, if no other pod has it. The caller has the place's turn.
func (v *Volumes) relabel(ctx context.Context, w *wanted, p place) error {
	mounted, err := v.deps.Mounter.Mounted(p.path)
	if err != nil || !mounted || !v.selinux().Enabled() {
		return err
	}
	is, err := v.labelOf(w, p, p.path)
	if err != nil || is == p.label {
		return err
	}
	used, err := v.used(p)
	if err != nil {
		return err
	}
	if used {
		return &podstate.VolumeStep{Step: "MountVolume", Err: selinux.Elsewhere(w.called)}
	}
	klog.FromContext(ctx).Info("A volume is unmounted, to be mounted anew with another SELinux label", "pod", klog.KObj(w.pod), "volume", w.name)
	return v.deps.Mounter.UnmountRemote(ctx, p.path)
}

// keepLabel keeps with which label a pod has a disk's filesystem.
func (v *Volumes) keepLabel(w *wanted, p place, label selinux.Label) {
	if !v.selinux().Enabled() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.labels[p.path] == nil {
		v.labels[p.path] = selinux.Labels{}
	}
	v.selinux().Keep(v.labels[p.path], w.byLabel(), label)
}

// dropLabel forgets with which label a pod had what was mounted in its directory.
func (v *Volumes) dropLabel(dir string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for path, has := range v.labels {
		if delete(has, dir); len(has) == 0 {
			delete(v.labels, path)
		}
	}
}

// Conflict implements volume.Refuser: a pod that wants a volume with another label than the
// one that has it is told so.
func (v *Volumes) Conflict(ctx context.Context, r volume.Request) error {
	w, err := wantedBy(r)
	if err != nil || w.block {
		return nil // what is wrong with it is said to who may have the volume
	}
	_, err = v.label(ctx, w, v.placeOf(w.disk, false), false)
	return err
}
