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

// settleSoon has it looked whether a volume is to be unstaged, again and again until it is
// or a pod has it. It returns at once: a pod's end does not wait for it.
func (c *Volumes) settleSoon(id volumeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if again := c.settling[id]; again != nil {
		select {
		case again <- struct{}{}:
		default:
		}
		return
	}
	again := make(chan struct{}, 1)
	if c.beginLocked(func() { c.settleOne(id, again) }) {
		c.settling[id] = again
	}
}

// settleAgain has those of a driver looked at that could not be unstaged.
func (c *Volumes) settleAgain(driver string) {
	c.mu.Lock()
	var ids []volumeID
	for id := range c.settling {
		if id.driver == driver {
			ids = append(ids, id)
		}
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.settleSoon(id)
	}
}

// settleOne settles one volume, until that is done and nobody asks for it again.
func (c *Volumes) settleOne(id volumeID, again <-chan struct{}) {
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 2 * time.Minute, Jitter: 0.1})
	failing := false
	for {
		err := c.settle(c.life, id)
		if c.settled(id, err, again) {
			return
		}
		if (err != nil) != failing {
			failing = err != nil
			klog.FromContext(c.life).Info("Unstaging a volume that no pod of the node has; it is tried again by itself", "failing", failing, "err", err)
		}
		if err == nil {
			continue
		}
		timer := time.NewTimer(retry.Next())
		select {
		case <-timer.C:
		case <-again:
			timer.Stop()
		case <-c.life.Done():
			timer.Stop()
		}
	}
}

// settled says whether nobody needs to look at a volume any more.
func (c *Volumes) settled(id volumeID, err error, again <-chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() == nil {
		select {
		case <-again:
			if err == nil {
				return false
			}
		default:
		}
		if err != nil {
			return false
		}
	}
	delete(c.settling, id)
	return true
}

// settle unstages a volume that no pod has or wants, and tells that it may be detached.
func (c *Volumes) settle(ctx context.Context, id volumeID) error {
	st, leave, err := c.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	if c.inUse.isWanted(id) {
		return nil // whoever wants it ends with Forget
	}
	published, err := c.onDisk()
	if err != nil || published[id] {
		return err
	}
	for dir := range st.published { // what was beside it there was damaged
		st.forget(dir, true)
	}
	if err := c.unstage(ctx, st, id); err != nil {
		return err
	}
	c.inUse.free(id)
	return nil
}

// onDisk are the volumes of claims that pods have, or are to have, by what lies on the
// disk, whoever has put it there. It fails when that cannot be told: a volume that a pod
// has must not be unstaged.
func (c *Volumes) onDisk() (map[volumeID]bool, error) {
	pods := filepath.Join(c.cfg.RootDir, "pods")
	uids, err := names(pods)
	if err != nil {
		return nil, err
	}
	found := map[volumeID]bool{}
	for _, uid := range uids {
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
	return ids, nil
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

// settleStaged has all volumes looked at that are staged.
func (c *Volumes) settleStaged(ctx context.Context) {
	staged, err := c.stagedOnDisk()
	if err != nil {
		klog.FromContext(ctx).Info("The volumes that are staged cannot be read; those without a pod are unstaged with the next start", "err", err)
	}
	for _, id := range staged {
		c.settleSoon(id)
	}
}
