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
)

// unpublishLeft takes devices of a volume back that are published though no pod has it,
// before it is unstaged, and returns the PersistentVolumes that name it as a device. A
// driver may have gone on to publish one after it had said that it is unpublished, and
// another agent may have ended before it wrote which pod has one: a kubelet does that only
// once the device is published. The caller has the volume's turn.
func (c *Volumes) unpublishLeft(ctx context.Context, id volumeID) (pvs []string, err error) {
	known, _, err := c.deviceData()
	if err != nil {
		return nil, err
	}
	for pv, of := range known {
		if of != id {
			continue
		}
		pvs = append(pvs, pv)
		uids, err := c.leftOf(pv)
		if err != nil {
			return nil, err
		}
		for _, uid := range uids {
			if err := c.unpublishLeftOf(ctx, id, pv, uid); err != nil {
				return nil, fmt.Errorf("volume %q: %w", id.handle, err)
			}
		}
	}
	return pvs, nil
}

// leftOf are the pods that devices of a PersistentVolume are published or shown for.
func (c *Volumes) leftOf(pv string) (uids []types.UID, err error) {
	all := c.blockPlaces(pv, "") // of no pod: the directory for all
	seen := map[string]bool{}
	for _, dir := range []string{all.publish, all.maps} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if !seen[e.Name()] {
				uids = append(uids, types.UID(e.Name()))
			}
			seen[e.Name()] = true
		}
	}
	return uids, nil
}

// unpublishLeftOf takes one back, unless the pod has devices still: a PersistentVolume
// called "publish" has those that it shows where another, called "dev", has its own.
func (c *Volumes) unpublishLeftOf(ctx context.Context, id volumeID, pv string, uid types.UID) error {
	at := c.blockPlaces(pv, uid)
	links, err := os.ReadDir(filepath.Join(c.cfg.RootDir, "pods", string(uid), podDevices, "kubernetes.io~csi"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(links) > 0 {
		return fmt.Errorf("%s is published for pod %s, which has devices still", at.publish, uid)
	}
	driver, err := c.drivers.find(id.driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: %s is published for pod %s, which does not have it: %w; start the driver on this node; if it is gone for good, remove that by hand", at.publish, uid, err)
	}
	klog.FromContext(ctx).Info("A device is published that no pod has; its driver is asked to unpublish it", "podUID", uid, "driver", id.driver, "volume", id.handle, "path", at.publish)
	return c.takeDeviceBack(ctx, driver, id, at)
}
