package csi

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Expand implements volume.Expander: the driver is asked to grow what a pod has of a
// volume, the filesystem on it included.
func (c *Volumes) Expand(ctx context.Context, r volume.Request, to resource.Quantity) error {
	w := c.wantedBy(r)
	_, leave, err := c.enter(ctx, w.id())
	if err != nil {
		return &growth.Error{Kind: growth.Away, Err: err}
	}
	defer leave()
	driver, err := c.drivers.get(w.data.DriverName, w.pod.UID)
	if err != nil {
		return &growth.Error{Kind: growth.Away, Err: err}
	}
	ctx, cancel := context.WithTimeout(w.asking(ctx), c.cfg.Timeout)
	defer cancel()
	request, err := c.expansion(ctx, &w, driver, to)
	if err != nil {
		return err
	}
	_, err = driver.node.NodeExpandVolume(ctx, request)
	return asExpansion(err)
}

// expansion is what a driver is asked for.
func (c *Volumes) expansion(ctx context.Context, w *wanted, driver *registered, to resource.Quantity) (*csi.NodeExpandVolumeRequest, error) {
	can, err := driver.abilities(ctx)
	if err != nil {
		return nil, &growth.Error{Kind: growth.Uncertain, Err: fmt.Errorf("Expander.NodeExpand failed to check if node supports expansion : %w", err)}
	}
	if !can[csi.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return nil, &growth.Error{Kind: growth.Unsupported, Err: fmt.Errorf("NodeExpand is not supported by the CSI driver %s", w.data.DriverName)}
	}
	path, staging := filepath.Join(w.dir, mountName), filepath.Join(c.stagingDir(w.id()), globalMount)
	if w.block {
		at := c.blockPlaces(w.data.SpecVolID, w.pod.UID)
		path, staging = at.publish, at.staging
	}
	if !can[csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		staging = ""
	}
	there := isThere(path)
	if !w.block { // a driver may publish without a mount
		given, err := readVolumeData(w.dir)
		there = err == nil && given.id() == w.id()
	}
	if !there { // taken down meanwhile
		return nil, &growth.Error{Kind: growth.Away, Err: fmt.Errorf("the volume is not at %s any more", path)}
	}
	secret, err := c.expandSecret(ctx, w)
	if err != nil {
		return nil, &growth.Error{Kind: growth.Uncertain, Err: err}
	}
	return &csi.NodeExpandVolumeRequest{
		VolumeId: w.data.VolumeHandle, VolumePath: path, StagingTargetPath: staging, Secrets: secret,
		CapacityRange: &csi.CapacityRange{RequiredBytes: to.Value()}, VolumeCapability: w.capability(can, nil),
	}, nil
}

func (c *Volumes) expandSecret(ctx context.Context, w *wanted) (map[string]string, error) {
	ref := w.expandSecret
	if ref == nil {
		return nil, nil
	}
	secret, err := c.secret(ctx, "NodeExpandSecretRef", ref)
	if err != nil {
		return nil, fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return secret, nil
}
