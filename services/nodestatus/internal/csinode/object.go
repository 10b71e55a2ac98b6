package csinode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/answer"
)

// migrated are the volumes for which this node asks CSI drivers instead.
// Source: KEP-625; all have been so since Kubernetes 1.31.
const migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// writeCSINode makes the CSINode, or brings it up to date. One that is another Node's is
// replaced.
func (k *Keeper) writeCSINode(ctx context.Context, uid types.UID, drivers []Driver) error {
	there, err := k.readCSINode(ctx)
	if there != nil && !ownedBy(there, k.cfg.NodeName, uid) {
		if err := k.deleteCSINode(ctx, there.UID); err != nil {
			return err
		}
		there = nil
	}
	if err != nil {
		return err
	}
	if there == nil {
		return k.createCSINode(ctx, uid, drivers)
	}
	// What an entry says cannot be changed: one that is to say something else goes first.
	// Only how many volumes there may be can.
	changed := recount(there, drivers)
	stale := slices.DeleteFunc(slices.Clone(there.Spec.Drivers), func(d storagev1.CSINodeDriver) bool {
		now := slices.IndexFunc(drivers, func(other Driver) bool { return other.Name == d.Name })
		return now >= 0 && (drivers[now].Gone || !same(d, entry(drivers[now])))
	})
	changed = changed || there.Annotations[v1.MigratedPluginsAnnotationKey] != migrated
	if len(stale) != len(there.Spec.Drivers) || changed {
		there.Spec.Drivers = stale
		metav1.SetMetaDataAnnotation(&there.ObjectMeta, v1.MigratedPluginsAnnotationKey, migrated)
		if there, err = k.updateCSINode(ctx, there); err != nil {
			return err
		}
	}
	added := false
	for _, d := range drivers {
		if !d.Gone && !slices.Contains(names(there), d.Name) {
			there.Spec.Drivers, added = append(there.Spec.Drivers, entry(d)), true
		}
	}
	if added {
		_, err = k.updateCSINode(ctx, there)
	}
	return err
}

// writeEach is writeCSINode for each driver by itself, when the apiserver refuses them
// together; clash says which it refuses.
func (k *Keeper) writeEach(ctx context.Context, uid types.UID, drivers []Driver) (clash, err error) {
	if err := k.writeCSINode(ctx, uid, nil); err != nil {
		return nil, err
	}
	for _, d := range drivers {
		switch err := k.writeCSINode(ctx, uid, []Driver{d}); {
		case refused(err):
			clash = errors.Join(clash, fmt.Errorf("CSI driver %s: %w", d.Name, err))
		case err != nil:
			return clash, err
		}
	}
	return clash, nil
}

// recount changes how many volumes there may be of drivers of which nothing else has
// changed.
func recount(there *storagev1.CSINode, drivers []Driver) (changed bool) {
	for i := range there.Spec.Drivers {
		is := &there.Spec.Drivers[i]
		now := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == is.Name && !d.Gone })
		if now < 0 || is.Allocatable == nil {
			continue
		}
		wanted := entry(drivers[now])
		if wanted.Allocatable == nil || same(*is, wanted) {
			continue
		}
		before := is.Allocatable
		if is.Allocatable = wanted.Allocatable; !same(*is, wanted) {
			is.Allocatable = before
			continue
		}
		changed = true
	}
	return changed
}

// entry is what a driver has in the CSINode.
func entry(d Driver) storagev1.CSINodeDriver {
	out := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
	if d.MaxVolumes > 0 {
		count := int32(min(d.MaxVolumes, math.MaxInt32)) //nolint:gosec // It is not larger.
		out.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return out
}

func same(a, b storagev1.CSINodeDriver) bool {
	count := func(d storagev1.CSINodeDriver) int32 {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			return 0
		}
		return *d.Allocatable.Count
	}
	keys := slices.Clone(a.TopologyKeys)
	slices.Sort(keys)
	return a.NodeID == b.NodeID && count(a) == count(b) && slices.Equal(keys, b.TopologyKeys)
}

func ownedBy(n *storagev1.CSINode, name string, uid types.UID) bool {
	return slices.ContainsFunc(n.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Node" && r.Name == name && r.UID == uid
	})
}

// readCSINode returns nil when there is none.
func (k *Keeper) readCSINode(ctx context.Context) (*storagev1.CSINode, error) {
	ctx, cancel := k.request(ctx)
	defer cancel()
	there, err := k.cfg.CSINodes.Get(ctx, k.cfg.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err := answer.Object(there, k.cfg.NodeName, err); err != nil {
		return nil, k.failed("read CSINode", err)
	}
	return there, nil
}

func (k *Keeper) createCSINode(ctx context.Context, uid types.UID, drivers []Driver) error {
	fresh := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.cfg.NodeName, Annotations: map[string]string{v1.MigratedPluginsAnnotationKey: migrated},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.cfg.NodeName, UID: uid}},
		},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}},
	}
	for _, d := range drivers {
		if !d.Gone {
			fresh.Spec.Drivers = append(fresh.Spec.Drivers, entry(d))
		}
	}
	ctx, cancel := k.request(ctx)
	defer cancel()
	made, err := k.cfg.CSINodes.Create(ctx, fresh, metav1.CreateOptions{})
	if err := answer.Object(made, k.cfg.NodeName, err); err != nil {
		return k.failed("create CSINode", err)
	}
	return nil
}

func (k *Keeper) updateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	ctx, cancel := k.request(ctx)
	defer cancel()
	n, err := k.cfg.CSINodes.Update(ctx, n, metav1.UpdateOptions{})
	if err := answer.Object(n, k.cfg.NodeName, err); err != nil {
		return nil, k.failed("write CSINode", err)
	}
	return n, nil
}

// deleteCSINode deletes the one that was read, and no other.
func (k *Keeper) deleteCSINode(ctx context.Context, uid types.UID) error {
	ctx, cancel := k.request(ctx)
	defer cancel()
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if err := k.cfg.CSINodes.Delete(ctx, k.cfg.NodeName, only); err != nil && !apierrors.IsNotFound(err) {
		return k.failed("delete CSINode, which is of another Node,", err)
	}
	return nil
}
