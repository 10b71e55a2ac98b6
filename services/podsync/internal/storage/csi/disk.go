package csi

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
)

// onDisk are the volumes of claims that pods have, or are to have, by what lies on the
// disk, whoever has put it there. It fails when that cannot be told: a volume that a pod
// has must not be unstaged.
func (c *Volumes) onDisk() (map[volumeID]bool, error) {
	found, unknown, err := c.ofPods()
	return found, cmp.Or(err, unknown)
}

// ofPods is onDisk, but for what is damaged: unknown says that pods have others, too,
// until these are published anew, or the pods are gone.
func (c *Volumes) ofPods() (found map[volumeID]bool, unknown, err error) {
	pods := filepath.Join(c.cfg.RootDir, "pods")
	uids, err := names(pods)
	if err != nil {
		return nil, nil, err
	}
	known, damaged, err := c.deviceData()
	if err != nil {
		return nil, nil, err
	}
	found = map[volumeID]bool{}
	for _, uid := range uids {
		devices, why, err := c.devicesOnDisk(uid, known, damaged)
		if err != nil {
			return nil, nil, err
		}
		unknown = cmp.Or(unknown, why)
		for _, id := range devices {
			found[id] = true
		}
		all, damaged, err := dataBelow(filepath.Join(pods, uid, "volumes", "kubernetes.io~csi"))
		if err != nil {
			return nil, nil, err
		}
		for _, why := range damaged {
			unknown = cmp.Or(unknown, why)
		}
		for _, data := range all {
			if data.persists() {
				found[data.id()] = true
			}
		}
	}
	return found, unknown, nil
}

// stagedOnDisk are the volumes that are staged, or are to be. What is damaged there is
// nobody's to mend, and must not keep all others from being told of for ever: it is the
// Node that says which volume it is, and one that it does not name may be detached already.
func (c *Volumes) stagedOnDisk(ctx context.Context) (ids []volumeID, err error) {
	drivers, err := names(c.stagings())
	if err != nil {
		return nil, err
	}
	for _, driver := range drivers {
		all, damaged, err := dataBelow(filepath.Join(c.stagings(), driver))
		if err != nil {
			return nil, err
		}
		for dir, data := range all {
			if c.stagingDir(data.id()) == dir { // kubelets before 1.24 had other places
				ids = append(ids, data.id())
			}
		}
		for dir, why := range damaged {
			id, is, err := c.namedByNode(dir)
			switch {
			case err != nil:
				return nil, errors.Join(why, err)
			case is:
				ids = append(ids, id)
			default:
				klog.FromContext(ctx).Info("Nobody knows which volume is staged; unmount what is in its directory, and remove it, when no pod has it", "path", dir, "err", why)
			}
		}
	}
	known, damaged, err := c.deviceData()
	for _, id := range known {
		ids = append(ids, id)
	}
	for pv, why := range damaged {
		klog.FromContext(ctx).Info("Nobody knows which volume a device is; remove its directory when no pod has it", "path", c.blockPlaces(pv, "").data, "err", why)
	}
	return ids, err
}

// namedByNode is the volume that is staged in a directory, if the Node names it.
func (c *Volumes) namedByNode(dir string) (id volumeID, is bool, err error) {
	all, err := c.ofNode()
	for _, id := range all {
		if c.stagingDir(id) == dir {
			return id, true, nil
		}
	}
	return volumeID{}, false, err
}

// ofNode are the volumes of CSI drivers, and Disks, that the Node says are in use, or attached. It
// fails as long as the Node is not known.
func (c *Volumes) ofNode() (ids []volumeID, err error) {
	node := c.deps.Node.Object()
	if node == nil {
		return nil, errors.New("which volume it may be says this node's object, which has not been read yet")
	}
	all := slices.Clone(node.Status.VolumesInUse)
	for _, a := range node.Status.VolumesAttached {
		all = append(all, a.Name)
	}
	return ofDrivers(all), nil
}

// ofDrivers are those volumes of a Node that are of CSI drivers, or Disks.
func ofDrivers(all []v1.UniqueVolumeName) (ids []volumeID) {
	for _, name := range all {
		text, ours := strings.CutPrefix(string(name), uniquePrefix)
		driver, handle, is := strings.Cut(text, "^")
		if isDisk(name) {
			driver, handle, ours, is = "", string(name), true, true
		}
		if id := (volumeID{driver, handle}); ours && is && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// dataBelow is what lies beside the volumes in a directory, by their own; damaged are
// those of which that cannot be told.
func dataBelow(dir string) (all map[string]volumeData, damaged map[string]error, err error) {
	volumes, err := names(dir)
	all, damaged = map[string]volumeData{}, map[string]error{}
	for _, name := range volumes {
		at := filepath.Join(dir, name)
		data, err := readVolumeData(at)
		switch {
		case err == nil:
			all[at] = data
		case errors.Is(err, fs.ErrNotExist):
		case unreadable(err):
			damaged[at] = err
		default:
			return nil, nil, err
		}
	}
	return all, damaged, err
}

// names lists the directories in a directory; none when it does not exist.
func names(dir string) (list []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, e.Name())
		}
	}
	return list, err
}

// reconstruct finds what previous runs, and other agents, have left. It writes nothing.
func (c *Volumes) reconstruct(ctx context.Context) {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	for {
		err := c.lookAtDisk(ctx)
		if err == nil {
			close(c.inUse.known)
			return
		}
		klog.FromContext(ctx).Info("The volumes that previous runs have left cannot be read; it is tried again by itself", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// lookAtDisk tells of what is on the disk, and has settled what no pod has.
func (c *Volumes) lookAtDisk(ctx context.Context) error {
	published, unknown, err := c.ofPods()
	if err != nil {
		return err
	}
	staged, err := c.stagedOnDisk(ctx)
	if err != nil {
		return err
	}
	disks, err := c.disksLeft()
	if err != nil {
		return err
	}
	staged = append(staged, disks...)
	if unknown != nil { // whatever it is, it stays as it was until that is known
		more, err := c.ofNode()
		if err != nil {
			return errors.Join(unknown, err)
		}
		klog.FromContext(ctx).Info("Nobody knows which volume a pod has; all that the Node names stay in use until it is published anew, or the pod is gone", "err", unknown)
		staged = append(staged, more...)
	}
	for id := range published {
		c.inUse.found(id)
	}
	for _, id := range staged {
		c.inUse.found(id)
	}
	still, _, err := c.ofPods() // pods may have ended meanwhile
	if err != nil {
		return err
	}
	for id := range published {
		if !still[id] {
			c.settleSoon(id)
		}
	}
	for _, id := range staged {
		if !still[id] {
			c.settleSoon(id)
		}
	}
	return nil
}
