package csi

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

// settleSoon has it looked whether a volume is to be unstaged, again and again until it is
// or a pod has it. It returns at once: a pod's end does not wait for it.
func (c *Volumes) settleSoon(id volumeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if again := c.settling[id]; again != nil {
		again.Set()
		return
	}
	again := wake.New()
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
	log := klog.FromContext(c.life).WithValues("driver", id.driver, "volume", id.handle)
	var said reason.Said
	for {
		err := c.settle(c.life, id)
		if err == nil {
			c.isSettled(id)
			if lasted, was := said.Good(); was {
				log.Info("A volume that could not be unstaged is settled: it is unstaged, or a pod of the node has it again", "after", lasted)
			}
		}
		done, asked := c.settled(id, err, again)
		if done {
			return
		}
		if err == nil {
			continue
		}
		wait := time.Duration(0)
		if !asked {
			wait = retry.Next()
		}
		since, tell := said.Failed(err)
		c.notSettled(id, err, since, time.Now().Add(wait))
		if tell {
			log.Info("A volume that no pod of the node has cannot be unstaged; it is tried again by itself, and until then the node says that it is in use, which may keep it from a pod of another node",
				"since", since.Format(time.RFC3339), "advice", unsettledAdvice(err), "err", err)
		}
		if asked {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-again:
			timer.Stop()
		case <-c.life.Done():
			timer.Stop()
		}
	}
}

// settled says whether nobody needs to look at a volume any more; asked: it was asked for
// again meanwhile, as by a driver that registers while it is tried.
func (c *Volumes) settled(id volumeID, err error, again <-chan struct{}) (done, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() == nil {
		select {
		case <-again:
			return false, true
		default:
		}
		if err != nil {
			return false, false
		}
	}
	delete(c.settling, id)
	return true, false
}

// settle unstages a volume that no pod has or wants, or takes a disk away, and tells that
// it may be detached.
func (c *Volumes) settle(ctx context.Context, id volumeID) error {
	st, leave, err := c.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	if c.inUse.isWanted(id) {
		return nil // whoever wants it ends with Forget
	}
	if id.driver == "" {
		return c.settleDisk(ctx, id)
	}
	published, err := c.onDisk()
	if err != nil || published[id] {
		return err
	}
	for dir := range st.published { // what was beside it there was damaged
		st.forget(dir, true)
	}
	pvs, err := c.unpublishLeft(ctx, id)
	if err != nil {
		return err
	}
	if err := c.unstage(ctx, st, id); err != nil {
		return err
	}
	if err := c.unstageDevices(ctx, st, id, pvs); err != nil {
		return err
	}
	if err := c.unstageRest(ctx, st, id); err != nil {
		return err
	}
	c.inUse.free(id, c.deps.Node.Object)
	return nil
}

// settleStaged has all volumes looked at that are staged.
func (c *Volumes) settleStaged(ctx context.Context) {
	staged, err := c.stagedOnDisk(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("The volumes that are staged cannot be read; those without a pod are unstaged with the next start", "err", err)
	}
	for _, id := range staged {
		c.settleSoon(id)
	}
}
