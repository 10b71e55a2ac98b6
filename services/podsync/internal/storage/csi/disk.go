package csi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
)

// onDisk are the volumes of claims that pods have, or are to have, by what lies on the
// disk, whoever has put it there. It fails when that cannot be told: a volume that a pod
// has must not be unstaged.
func (c *Volumes) onDisk() (map[volumeID]bool, error) {
	pods := filepath.Join(c.cfg.RootDir, "pods")
	uids, err := names(pods)
	if err != nil {
		return nil, err
	}
	known, err := c.deviceData()
	if err != nil {
		return nil, err
	}
	found := map[volumeID]bool{}
	for _, uid := range uids {
		devices, err := c.devicesOnDisk(uid, known)
		if err != nil {
			return nil, err
		}
		for _, id := range devices {
			found[id] = true
		}
		all, err := dataBelow(filepath.Join(pods, uid, "volumes", "kubernetes.io~csi"))
		if err != nil {
			return nil, err
		}
		for _, data := range all {
			if data.persists() {
				found[data.id()] = true
			}
		}
	}
	return found, nil
}

// stagedOnDisk are the volumes that are staged, or are to be.
func (c *Volumes) stagedOnDisk() (ids []volumeID, err error) {
	drivers, err := names(c.stagings())
	if err != nil {
		return nil, err
	}
	for _, driver := range drivers {
		all, err := dataBelow(filepath.Join(c.stagings(), driver))
		if err != nil {
			return nil, err
		}
		for dir, data := range all {
			if c.stagingDir(data.id()) == dir { // kubelets before 1.24 had other places
				ids = append(ids, data.id())
			}
		}
	}
	known, err := c.deviceData()
	for _, id := range known {
		ids = append(ids, id)
	}
	return ids, err
}

// dataBelow is what lies beside the volumes in a directory, by their own.
func dataBelow(dir string) (map[string]volumeData, error) {
	volumes, err := names(dir)
	all := map[string]volumeData{}
	for _, name := range volumes {
		at := filepath.Join(dir, name)
		data, err := readVolumeData(at)
		switch {
		case err == nil:
			all[at] = data
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return all, err
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
		err := c.lookAtDisk()
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
func (c *Volumes) lookAtDisk() error {
	published, err := c.onDisk()
	if err != nil {
		return err
	}
	staged, err := c.stagedOnDisk()
	if err != nil {
		return err
	}
	for id := range published {
		c.inUse.found(id)
	}
	for _, id := range staged {
		c.inUse.found(id)
	}
	still, err := c.onDisk() // pods may have ended meanwhile
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
