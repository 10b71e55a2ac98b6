package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Teardown implements volume.Driver, also for volumes that another agent has published.
func (c *Volumes) Teardown(ctx context.Context, v volume.Remains) error {
	data, err := readVolumeData(v.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.abandon(v)
	case errors.Is(err, errDamaged):
		klog.FromContext(ctx).Info("Nobody knows whose a volume is; it is unmounted, and its driver not asked", "podUID", v.UID, "path", v.Dir, "err", err)
		err := c.abandon(v)
		c.settleStaged(ctx) // it may have been the last one to have a volume
		return err
	case err != nil:
		return err
	}
	err = c.ending(ctx, v, data, func() error { return c.unpublish(ctx, v, data) })
	if err == nil && data.persists() {
		c.settleSoon(data.id())
	}
	return err
}

// ending ends a pod's use of a volume in the volume's turn.
func (c *Volumes) ending(ctx context.Context, v volume.Remains, data volumeData, end func() error) error {
	st, leave, err := c.enter(ctx, data.id())
	if err != nil {
		return err
	}
	defer leave()
	st.forget(v.Dir, false)
	if err = end(); err == nil {
		st.forget(v.Dir, true)
	}
	return err
}

func (c *Volumes) unpublish(ctx context.Context, v volume.Remains, data volumeData) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	target := filepath.Join(v.Dir, mountName)
	driver, err := c.drivers.get(data.DriverName, v.UID)
	if err != nil {
		return fmt.Errorf("volume %q: kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: %w; start the driver on this node; if it is gone for good, unmount %s and remove %s by hand", v.Name, err, target, v.Dir)
	}
	defer func() { c.lost(driver, v.UID, err) }()
	if err := driver.Unpublish(ctx, data.VolumeHandle, target); err != nil {
		return fmt.Errorf("volume %q: kubernetes.io/csi: Unmounter.TearDownAt failed: %w", v.Name, err)
	}
	mounted, err := c.deps.Mounter.Mounted(target)
	if err == nil && mounted {
		err = podstate.VolumeDriverRefused.Wrap(fmt.Errorf("driver %s says that it is unpublished, and %s is mounted still", data.DriverName, target))
	}
	if err == nil {
		err = c.clean(v.Dir)
	}
	if err != nil {
		return fmt.Errorf("volume %q: kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [%s]: %w", v.Name, target, err)
	}
	return nil
}

// Forget implements volume.Forgetter.
func (c *Volumes) Forget(uid types.UID) {
	c.drivers.forget(uid)
	ids, mayTry := c.inUse.forget(uid)
	for _, id := range ids {
		c.settleSoon(id)
	}
	if c.deps.Pods != nil && len(mayTry) > 0 {
		c.deps.Pods.ObjectsChanged(mayTry)
	}
}

// abandon ends what nobody knows the driver of.
func (c *Volumes) abandon(v volume.Remains) error {
	if err := c.deps.Mounter.Unmount(filepath.Join(v.Dir, mountName)); err != nil {
		return err
	}
	return c.clean(v.Dir)
}

// clean removes what lies around a pod's volume, unless that is mounted.
func (c *Volumes) clean(dir string) error { return c.removeAround(dir, filepath.Join(dir, mountName)) }

// removeAround removes a directory with a volume's place in it, unless that is mounted.
// The data beside it goes last but one: while it is there, the driver is asked again.
// Nothing is removed that is in a volume.
func (c *Volumes) removeAround(dir, target string) error {
	mounted, err := c.deps.Mounter.Mounted(target)
	if err != nil {
		return err
	}
	if mounted {
		return fmt.Errorf("%s is mounted still", target)
	}
	fsatomic.Clean(dir, volumeDataFile) // what a crash has left of writing it
	for _, path := range []string{target, filepath.Join(dir, volumeDataFile), dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
