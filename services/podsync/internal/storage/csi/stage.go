package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// globalMount is where a volume is staged, beside its own volumeDataFile.
const globalMount = "globalmount"

// stagedData is what volumeDataFile holds beside a staged volume, as the kubelet writes
// it; the fields' order is its, too. Migrated is ours.
type stagedData struct {
	DriverName          string `json:"driverName"`
	Migrated            string `json:"migrated,omitempty"` // see volumeData
	SELinuxMountContext string `json:"seLinuxMountContext,omitempty"`
	VolumeHandle        string `json:"volumeHandle"`
}

// stagings is where all volumes are staged, by their drivers.
func (c *Volumes) stagings() string {
	return filepath.Join(c.cfg.RootDir, "plugins", "kubernetes.io", "csi")
}

// stagingDir is where a volume is staged, with what says so.
func (c *Volumes) stagingDir(id volumeID) string {
	return filepath.Join(c.stagings(), id.driver, fmt.Sprintf("%x", sha256.Sum256([]byte(id.handle))))
}

// stage has a driver stage a volume for all pods of the node, unless this process has
// already. The caller has the volume's turn. What is to be known of it is on the disk
// before the driver is asked.
func (c *Volumes) stage(ctx context.Context, st *state, w *wanted, on *registered, p *publication) error {
	if st.staged[p.staging] {
		return nil
	}
	dir := c.stagingDir(w.id())
	_, readErr := readVolumeData(dir)
	before := !errors.Is(readErr, fs.ErrNotExist)
	err := makeMountPoint(filepath.Join(dir, globalMount))
	if err == nil && (!before || errors.Is(readErr, errDamaged)) {
		err = writeData(dir, stagedData{
			DriverName: w.data.DriverName, Migrated: w.keptMigrated(), SELinuxMountContext: w.data.SELinuxMountContext, VolumeHandle: w.data.VolumeHandle,
		})
	}
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: failed to save volume info data: %w", err)
	}
	var group *int64
	if p.can.MountGroup {
		group = ownership.Of(w.pod)
	}
	err = c.askToStage(ctx, w, on, p, group)
	if err != nil {
		if peer.Final(err) && !before { // what an earlier attempt has left may be there
			if cleanErr := c.cleanStaging(dir); cleanErr != nil {
				w.log(ctx).Info("What a volume was to be staged in cannot be removed; it is when no pod has the volume", "path", dir, "err", cleanErr)
			}
		}
		return err
	}
	st.staged[p.staging], st.migrated = true, w.migrated
	return nil
}

// askToStage has the driver stage a volume.
func (c *Volumes) askToStage(ctx context.Context, w *wanted, on *registered, p *publication, group *int64) error {
	ctx, cancel := context.WithTimeout(w.asking(ctx), c.cfg.Timeout)
	defer cancel()
	secret, err := c.secret(ctx, "NodeStageSecretRef", w.stageSecret)
	if err != nil {
		return err
	}
	return on.Stage(ctx, peer.Staging{
		Handle: w.data.VolumeHandle, Target: p.staging, As: w.capability(p.can, group),
		Attachment: p.attachment, Context: w.attributes, Secret: secret,
	})
}

// asMountDevice says of an error that it is of staging, in the words that people know.
func asMountDevice(err error) error {
	return &podstate.VolumeStep{Step: "MountVolume.MountDevice", Err: err}
}

// unstage has a driver end what stage began, if it has; the caller has the volume's turn,
// and knows that no pod has it.
func (c *Volumes) unstage(ctx context.Context, st *state, id volumeID) error {
	dir := c.stagingDir(id)
	target := filepath.Join(dir, globalMount)
	if removedAlready(dir) {
		delete(st.staged, target)
		return nil
	}
	if removedAlready(filepath.Join(dir, volumeDataFile)) {
		return c.cleanStaging(dir) // the driver was not asked yet, or does not stage
	}
	if err := c.askToUnstage(ctx, st, id, target, keptMigrated(dir)); err != nil {
		return err
	}
	delete(st.staged, target)
	if err := c.cleanStaging(dir); err != nil {
		return fmt.Errorf("volume %q: kubernetes.io/csi: failed to clean up global mount %s: %w", id.handle, dir, err)
	}
	return nil
}

// askToUnstage has the driver unstage a volume, if it stages any. Once it is asked nobody
// knows what is staged, if it fails: a pod that comes then has the volume staged anew.
// migrated: a volume of before CSI lies there, by what is on the disk. The call itself is
// counted as of any other, as by the kubelet; that there is nobody to call is a failure, too,
// of the driver that has staged it.
func (c *Volumes) askToUnstage(ctx context.Context, st *state, id volumeID, target string, migrated bool) error {
	operation, began := "unmount_device", time.Now()
	if strings.HasPrefix(target, c.devices()+"/") {
		operation = "unmap_device"
	}
	asked, err := c.askToUnstageAt(ctx, st, id, target)
	if asked || err != nil {
		c.deps.Metrics.Volume(operation, "kubernetes.io/csi:"+id.driver, migrated || st.migrated, began, err)
	}
	return err
}

// askToUnstageAt is askToUnstage uncounted; asked: the driver stages, and was asked.
func (c *Volumes) askToUnstageAt(ctx context.Context, st *state, id volumeID, target string) (asked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	driver, err := c.drivers.find(id.driver)
	if err != nil {
		return false, fmt.Errorf("volume %q: kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: %w; start the driver on this node; if it is gone for good, unmount %s and remove its directory by hand", id.handle, err, target)
	}
	can, err := driver.Abilities(ctx)
	if err != nil {
		return false, fmt.Errorf("volume %q: kubernetes.io/csi: attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set: %w", id.handle, err)
	}
	if !can.StageUnstage {
		return false, nil
	}
	st.staged[target] = false
	if err := driver.Unstage(ctx, id.handle, target); err != nil {
		return true, fmt.Errorf("volume %q: kubernetes.io/csi: attacher.UnmountDevice failed: %w", id.handle, err)
	}
	return true, nil
}

// unstageRest has the driver end what this process has staged and nothing on the disk
// tells of any more.
func (c *Volumes) unstageRest(ctx context.Context, st *state, id volumeID) error {
	for target := range st.staged {
		if !removedAlready(target) { // else somebody has removed it by hand
			if err := c.askToUnstage(ctx, st, id, target, false); err != nil {
				return err
			}
		}
		delete(st.staged, target)
	}
	return nil
}

// cleanStaging removes what lies around a staged volume, unless that is mounted; see clean.
func (c *Volumes) cleanStaging(dir string) error {
	return c.removeAround(dir, filepath.Join(dir, globalMount))
}

// makeMountPoint makes a directory that something may be mounted on already, which is not
// asked.
func makeMountPoint(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// removedAlready says whether nothing lies at a path. What is mounted there is not asked.
func removedAlready(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	return errors.Is(err, unix.ENOENT)
}
