package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
)

// Growth has volumes of claims grown; *growth.Volumes has it.
type Growth interface {
	AtMount(ctx context.Context, v growth.Volume, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error
	Leave(uid types.UID)
}

// grown has a volume grown that has just been set up, and later when it becomes larger.
func (s *Set) grown(ctx context.Context, r Request, claim *v1.PersistentVolumeClaim, b bound) error {
	if s.deps.Growth == nil {
		return nil
	}
	grow := s.growing(r, b)
	if grow == nil {
		return nil
	}
	used, plugin := &atomic.Bool{}, s.shownDriver(shownName(pluginOf(b.Kind)), r.Dir)
	counted := func(ctx context.Context, size resource.Quantity) error {
		began := time.Now()
		err := grow(ctx, size)
		if used.Load() { // else it is a part of the mount
			s.deps.Metrics.Volume("volume_fs_resize", plugin, b.Migrated, began, err)
		}
		return err
	}
	err := s.deps.Growth.AtMount(ctx, growth.Volume{Pod: r.Pod, Claim: claim.Name, ReadOnly: r.ReadOnly, Grow: counted}, claim, r.PV)
	used.Store(true)
	switch {
	case err == nil:
		return nil
	case b.Device:
		return &podstate.VolumeStep{Step: "MapVolume.MarkVolumeAsMounted failed while expanding volume", Err: err, Whole: true}
	}
	return &podstate.VolumeStep{Step: "MountVolume.Setup failed while expanding volume", Err: err, Whole: true}
}

// growing grows a volume; nil when it is of a kind that does not.
func (s *Set) growing(r Request, b bound) func(context.Context, resource.Quantity) error {
	d, can := s.deps.CSI.(Expander)
	switch {
	case b.Kind == claims.CSI && can:
		return func(ctx context.Context, size resource.Quantity) error { return d.Expand(ctx, r, size) }
	case b.Kind == claims.Local:
		return func(ctx context.Context, _ resource.Quantity) error { return s.growLocal(ctx, r.PV, b) }
	}
	return nil
}

// resizeTimeout is how long a local volume's turn is kept for its filesystem to grow, which
// goes on after that and is looked at again.
const resizeTimeout = 2 * time.Minute

// growLocal makes the filesystem of a local volume's device as large as that is. What lies
// in a directory of the node is as large as that, and a device is what it is.
func (s *Set) growLocal(ctx context.Context, pv *v1.PersistentVolume, b bound) error {
	if b.Device || b.Served {
		return nil
	}
	source, device, err := openLocal(pv.Spec.Local.Path, s.find)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if !device {
		return nil
	}
	return s.growMounted(ctx, pv, b.Path)
}

// growMounted makes the filesystem of a local volume's device as large as that, if it is
// mounted at a path.
func (s *Set) growMounted(ctx context.Context, pv *v1.PersistentVolume, path string) error {
	done, err := s.handles.TakeWithin(ctx, pv.Name)
	if err != nil {
		return err
	}
	defer done()
	mounted, err := s.deps.Mounter.Mounted(path)
	if err == nil && !mounted {
		err = fmt.Errorf("%s is not mounted any more", path)
	}
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	err = s.deps.Mounter.Resize(limited, filepath.Join("/", pv.Spec.Local.Path), path)
	if err != nil && limited.Err() != nil {
		return &growth.Error{Kind: growth.Uncertain, Err: err} // it may go on
	}
	return err
}
