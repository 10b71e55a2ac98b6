package csi

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// givesAway says whether the files are given to the pod's group here.
// Source: https://kubernetes-csi.github.io/docs/support-fsgroup.html; a volume in a
// pod's spec counts as ReadWriteOnce.
func (w *wanted) givesAway(object *storagev1.CSIDriver) bool {
	if w.readOnly {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if object.Spec.FSGroupPolicy != nil {
		policy = *object.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.NoneFSGroupPolicy:
		return false
	}
	return w.fsType != "" && w.forOneNode()
}

// giveAway gives the files to the pod's group. What does not let itself be given stays
// as it is, as with the kubelet: not every file system knows groups. Whoever answers for
// the files may not: that is waited for apart.
func (c *Volumes) giveAway(ctx context.Context, w *wanted, target string) error {
	change := ownership.Change{Group: ownership.Of(w.pod)}
	if security := w.pod.Spec.SecurityContext; security != nil && security.FSGroupChangePolicy != nil {
		change.OnMismatch = *security.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	}
	failed := 0
	var first error
	change.Skip = func(err error) {
		if failed++; first == nil {
			first = err
		}
	}
	if c.deps.Events != nil {
		change.Given = &atomic.Int64{}
		defer ownership.TellSlow(c.deps.Events, w.pod, target, change.Given.Load)()
	}
	give := change.Apply
	if c.deps.Apart != nil {
		give = func(ctx context.Context, target string) error {
			return change.ApplyApart(ctx, c.deps.Apart, mount.Filesystem(target), target)
		}
	}
	err := give(ctx, target)
	if failed > 0 {
		w.log(ctx).Info("Some files of a volume cannot be given to the pod's group", "failures", failed, "err", first)
	}
	return err
}
