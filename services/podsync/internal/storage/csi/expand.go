package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
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
	return asExpansion(driver.Expand(ctx, request))
}

// expansion is what a driver is asked for.
func (c *Volumes) expansion(ctx context.Context, w *wanted, driver *registered, to resource.Quantity) (peer.Expansion, error) {
	can, err := driver.Abilities(ctx)
	if err != nil {
		return peer.Expansion{}, &growth.Error{Kind: growth.Uncertain, Err: fmt.Errorf("Expander.NodeExpand failed to check if node supports expansion : %w", err)}
	}
	if !can.Expand {
		return peer.Expansion{}, &growth.Error{Kind: growth.Unsupported, Err: fmt.Errorf("NodeExpand is not supported by the CSI driver %s", w.data.DriverName)}
	}
	path, staging := filepath.Join(w.dir, mountName), filepath.Join(c.stagingDir(w.id()), globalMount)
	if w.block {
		at := c.blockPlaces(w.data.SpecVolID, w.pod.UID)
		path, staging = at.publish, at.staging
	}
	if !can.StageUnstage {
		staging = ""
	}
	if !c.isPublished(w, path) { // taken down meanwhile
		return peer.Expansion{}, &growth.Error{Kind: growth.Away, Err: fmt.Errorf("the volume is not at %s any more", path)}
	}
	secret, err := c.expandSecret(ctx, w)
	if err != nil {
		return peer.Expansion{}, &growth.Error{Kind: growth.Uncertain, Err: err}
	}
	return peer.Expansion{
		Handle: w.data.VolumeHandle, Path: path, Staging: staging, Bytes: to.Value(), As: w.capability(can, nil), Secret: secret,
	}, nil
}

// isPublished says whether a pod has a volume, by what lies beside it: a driver may publish one
// without a mount, and whoever answers for its filesystem may not.
func (c *Volumes) isPublished(w *wanted, device string) bool {
	if w.block {
		return isThere(device)
	}
	given, err := readVolumeData(w.dir)
	return err == nil && given.id() == w.id()
}

// asExpansion says what an error of a driver means for a volume that was to be grown.
func asExpansion(err error) error {
	if err == nil {
		return nil
	}
	failed := fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err) //nolint:staticcheck // The kubelet's words.
	switch {
	case peer.InUse(err):
		return &growth.Error{Kind: growth.InUse, Err: failed}
	case peer.Infeasible(err):
		return &growth.Error{Kind: growth.Infeasible, Err: fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err)} //nolint:staticcheck // The kubelet's words.
	case !peer.Final(err), errors.Is(err, context.Canceled):
		return &growth.Error{Kind: growth.Uncertain, Err: failed}
	}
	return failed
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
