package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// blockData is what volumeDataFile holds of a volume that pods use as a device, as the
// kubelet writes it. Migrated is ours.
type blockData struct {
	AttachmentID string `json:"attachmentID"`
	DriverName   string `json:"driverName"`
	Migrated     string `json:"migrated,omitempty"` // see volumeData
	NodeName     string `json:"nodeName"`
	SpecVolID    string `json:"specVolID"`
	VolumeHandle string `json:"volumeHandle"`
}

// blockPlaces are where a volume that is a device lies, by its PersistentVolume, and of
// one pod. They are the kubelet's.
type blockPlaces struct {
	data    string // a directory with what is to be known of it
	maps    string // a directory with the device for each pod, and its own
	device  string
	staging string // a directory
	publish string // the device, as the driver publishes it
}

// podDevices is the directory of a pod, and by plugin, with its links to devices.
const podDevices = "volumeDevices"

// devices is where all volumes are that are devices.
func (c *Volumes) devices() string { return filepath.Join(c.stagings(), "volumeDevices") }

func (c *Volumes) blockPlaces(pv string, uid types.UID) blockPlaces {
	all := c.devices()
	maps := filepath.Join(all, pv, "dev")
	return blockPlaces{
		data: filepath.Join(all, pv, "data"), maps: maps, device: filepath.Join(maps, string(uid)),
		staging: filepath.Join(all, "staging", pv), publish: filepath.Join(all, "publish", pv, string(uid)),
	}
}

// setUpDevice has a driver publish a volume as a device. In the pod's directory is a link
// to it, from before anything else is done: it says that the pod has it. The caller has
// the volume's turn.
func (c *Volumes) setUpDevice(ctx context.Context, st *state, w *wanted) (volume.Made, error) {
	at := c.blockPlaces(w.data.SpecVolID, w.pod.UID)
	made, stood := volume.Made{Path: w.dir}, isThere(w.dir) // through the link
	if p := st.published[w.dir]; p != nil && stood && p.end == nil {
		return made, nil
	}
	object, err := c.publishDevice(ctx, st, w, at)
	switch {
	case err == nil:
		st.forget(w.dir, false)
		st.published[w.dir] = &placed{wanted: *w}
		if isTrue(object.Spec.RequiresRepublish) {
			c.publishAgain(ctx, st, *w)
		}
		return made, nil
	case stood:
		return made, err
	}
	return volume.Made{}, err
}

func (c *Volumes) publishDevice(ctx context.Context, st *state, w *wanted, at blockPlaces) (object *storagev1.CSIDriver, err error) {
	driver, err := c.drivers.get(w.data.DriverName, w.pod.UID)
	if err != nil {
		return nil, asSetUpDevice(fmt.Errorf("kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: %w", err))
	}
	defer func() { c.lost(driver, w.pod.UID, err) }()
	asking, cancel := context.WithTimeout(w.asking(ctx), c.cfg.Timeout)
	defer cancel()
	object, err = c.object(asking, w)
	if err != nil {
		return nil, asSetUpDevice(fmt.Errorf("kubernetes.io/csi: blockMapper.SetupDevice failed to check CSIDriver for %s: %w", w.data.DriverName, err))
	}
	p, err := c.publication(asking, w, driver, object)
	if err != nil {
		return nil, podstate.OfDevice(podstate.InStep("MapVolume.SetUpDevice", err))
	}
	p.group, p.target = nil, at.publish
	before := isLink(w.dir)
	if err := c.keepDevice(w, at); err != nil {
		return nil, asSetUpDevice(err)
	}
	if p.staging != "" {
		p.staging = at.staging
		if err := c.stageDevice(ctx, st, w, driver, &p); err != nil {
			if peer.Final(err) && !before {
				_ = os.Remove(w.dir) // else with the pod's end
				c.settleSoon(w.id())
			}
			return nil, asSetUpDevice(err)
		}
	}
	if err := c.publishAt(ctx, driver, w, &p); err != nil {
		return nil, &podstate.VolumeStep{Step: "MapVolume.MapPodDevice", Err: err}
	}
	return object, c.mapDevice(at)
}

// asSetUpDevice says of an error that it is of a device's set-up, in the words that people
// know.
func asSetUpDevice(err error) error {
	return &podstate.VolumeStep{Step: "MapVolume.SetUpDevice", Err: err}
}

// keepDevice writes what is to be known of a device, and that the pod has it.
func (c *Volumes) keepDevice(w *wanted, at blockPlaces) error {
	d := w.data
	err := os.MkdirAll(at.data, 0o750)
	before, readErr := readVolumeData(at.data)
	if readErr == nil && before.id() != d.id() {
		return podstate.VolumeAsSaid.Wrap(fmt.Errorf("kubernetes.io/csi: %s is of the volume %q of driver %s still, until no pod has that and it is unstaged; if the driver is gone for good, remove what is of it there by hand", at.data, before.VolumeHandle, before.DriverName))
	}
	if err == nil && readErr != nil {
		err = writeData(at.data, blockData{d.AttachmentID, d.DriverName, w.keptMigrated(), d.NodeName, d.SpecVolID, d.VolumeHandle})
	}
	for _, dir := range []string{filepath.Dir(at.publish), at.maps, filepath.Dir(w.dir)} {
		if err == nil {
			err = os.MkdirAll(dir, 0o750)
		}
	}
	if err == nil {
		if to, linkErr := os.Readlink(w.dir); linkErr == nil && to == at.publish {
			return nil
		}
		if err = os.Remove(w.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Symlink(at.publish, w.dir)
		}
	}
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: failed to save volume info data: %w", err)
	}
	return nil
}

// stageDevice is stage for a device.
func (c *Volumes) stageDevice(ctx context.Context, st *state, w *wanted, driver *registered, p *publication) error {
	if st.staged[p.staging] {
		return nil
	}
	if err := os.MkdirAll(p.staging, 0o750); err != nil {
		return err
	}
	if err := c.askToStage(ctx, w, driver, p, nil); err != nil {
		return err
	}
	st.staged[p.staging], st.migrated = true, w.migrated
	return nil
}

// mapDevice shows a pod's device in the volume's own directory, too: what measures it, and
// other agents, look there.
func (c *Volumes) mapDevice(at blockPlaces) error {
	mounted, err := c.deps.Mounter.Mounted(at.device)
	if err != nil || mounted {
		return err
	}
	file, err := os.OpenFile(at.device, os.O_CREATE|os.O_RDONLY, 0o600)
	if err == nil {
		err = errors.Join(file.Close(), c.deps.Mounter.Bind(at.publish, at.device))
	}
	if err != nil {
		return &podstate.VolumeStep{Step: "MapVolume.MapBlockVolume", Err: err}
	}
	return nil
}

// Unmap implements volume.Mapper, also for devices that another agent has published.
func (c *Volumes) Unmap(ctx context.Context, v volume.Remains) error {
	at := c.blockPlaces(v.Name, v.UID)
	data, err := readVolumeData(at.data)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
		klog.FromContext(ctx).Info("Nobody knows whose a device is; it is taken from the pod, and its driver not asked", "podUID", v.UID, "path", v.Dir, "err", err)
		err := c.abandonDevice(v, at)
		c.settleStaged(ctx) // it may have been the last one to have a volume
		return err
	}
	if err != nil {
		return err
	}
	err = c.ending(ctx, v, data, func() error { return c.unpublishDevice(ctx, v, data, at) })
	if err == nil {
		c.settleSoon(data.id())
	}
	return err
}

// abandonDevice ends a device that nobody knows the driver of. The link goes last: as long
// as it is there, this is done again.
func (c *Volumes) abandonDevice(v volume.Remains, at blockPlaces) error {
	err := c.unmapDevice(at)
	if err == nil {
		err = c.deps.Mounter.Unmount(at.publish) // a driver may have mounted a device there, or made one
	}
	if err == nil {
		err = removeOne(at.publish)
	}
	if err != nil {
		return fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return removeOne(v.Dir)
}

func (c *Volumes) unpublishDevice(ctx context.Context, v volume.Remains, data volumeData, at blockPlaces) (err error) {
	driver, err := c.drivers.get(data.DriverName, v.UID)
	if err != nil {
		return fmt.Errorf("volume %q: kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client: %w; start the driver on this node; if it is gone for good, remove %s and %s by hand", v.Name, err, at.publish, v.Dir)
	}
	defer func() { c.lost(driver, v.UID, err) }()
	if err := c.takeDeviceBack(ctx, driver, data.id(), at); err != nil {
		return fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return removeOne(v.Dir) // the link goes last
}

// takeDeviceBack has a driver unpublish a device, and removes what is left of it outside
// of its pod's directory.
func (c *Volumes) takeDeviceBack(ctx context.Context, driver *registered, id volumeID, at blockPlaces) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.unmapDevice(at); err != nil {
		return err
	}
	if err := driver.Unpublish(ctx, id.handle, at.publish); err != nil {
		return fmt.Errorf("kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: %w", err)
	}
	mounted, err := c.deps.Mounter.Mounted(at.publish)
	if err == nil && mounted {
		err = podstate.VolumeDriverRefused.Wrap(fmt.Errorf("driver %s says that it is unpublished, and %s is mounted still", id.driver, at.publish))
	}
	if err != nil {
		return err
	}
	return removeOne(at.publish)
}

// unmapDevice undoes mapDevice, also as a kubelet does it, which holds the device open.
func (c *Volumes) unmapDevice(at blockPlaces) error {
	if !isThere(at.device) {
		return nil
	}
	if err := c.deps.Mounter.Release(at.device); err != nil {
		return err
	}
	if err := c.deps.Mounter.Unmount(at.device); err != nil {
		return err
	}
	return removeOne(at.device)
}

// unstageDevices ends what stageDevice began for a volume that no pod has, of the
// PersistentVolumes that name it.
func (c *Volumes) unstageDevices(ctx context.Context, st *state, id volumeID, pvs []string) error {
	for _, pv := range pvs {
		at := c.blockPlaces(pv, "") // of no pod: publish is the directory for all
		if isThere(at.staging) {
			if err := c.askToUnstage(ctx, st, id, at.staging, keptMigrated(at.data)); err != nil {
				return err
			}
		}
		delete(st.staged, at.staging)
		fsatomic.Clean(at.data, volumeDataFile)
		for _, path := range []string{
			at.staging, at.publish, at.maps, filepath.Join(at.data, volumeDataFile), at.data, filepath.Dir(at.data),
		} {
			if err := removeOne(path); err != nil {
				return fmt.Errorf("volume %q: kubernetes.io/csi: failed to clean up %s: %w", id.handle, path, err)
			}
		}
	}
	return nil
}

// deviceData is which volumes are devices, by the names of their PersistentVolumes;
// damaged are those of which that cannot be told.
func (c *Volumes) deviceData() (known map[string]volumeID, damaged map[string]error, err error) {
	pvs, err := names(c.devices())
	if err != nil {
		return nil, nil, err
	}
	known, damaged = map[string]volumeID{}, map[string]error{}
	for _, pv := range pvs {
		switch data, err := readVolumeData(c.blockPlaces(pv, "").data); {
		case err == nil:
			known[pv] = data.id()
		case errors.Is(err, fs.ErrNotExist):
		case unreadable(err):
			damaged[pv] = err
		default:
			return nil, nil, err
		}
	}
	return known, damaged, nil
}

// devicesOnDisk are the volumes that a pod has as devices; unknown says that it has one
// of those that are damaged.
func (c *Volumes) devicesOnDisk(uid string, known map[string]volumeID, damaged map[string]error) (ids []volumeID, unknown, err error) {
	links, err := os.ReadDir(filepath.Join(c.cfg.RootDir, "pods", uid, podDevices, "kubernetes.io~csi"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, link := range links {
		unknown = cmp.Or(unknown, damaged[link.Name()])
		if id, is := known[link.Name()]; is {
			ids = append(ids, id)
		}
	}
	return ids, unknown, err
}

// isThere says whether something is at a path, and at the end of its links.
func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// removeOne removes one file or empty directory; one that is not there is fine.
func removeOne(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
