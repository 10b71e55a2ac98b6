package csi

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// publishAgain publishes a volume again and again, as long as it is there. The caller
// has its turn; of its ctx only the logger lasts.
func (c *Volumes) publishAgain(ctx context.Context, st *state, w wanted) {
	ctx, cancel := context.WithCancel(klog.NewContext(c.life, klog.FromContext(ctx)))
	st.published[w.dir].end = cancel
	c.begin(func() {
		defer cancel()
		defer c.deps.Stale.Good(w.pod.UID, w.name)
		failing := false
		pause := c.cfg.Again + rand.N(c.cfg.Again/2)
		for {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
			err := c.publishOnce(ctx, w)
			if ctx.Err() != nil || errors.Is(err, errGone) {
				return
			}
			pause = c.cfg.Again + rand.N(c.cfg.Again/2)
			if err != nil {
				c.deps.Stale.Failed(w.pod, w.name, w.pv(), err, time.Now().Add(pause))
			} else {
				c.deps.Stale.Good(w.pod.UID, w.name)
			}
			if (err != nil) != failing {
				failing = err != nil
				if log := w.log(ctx); failing {
					log.Info("A volume could not be published again; it stays as it is, and that is tried again", "err", err)
				} else {
					log.Info("A volume was published again, after that had failed")
				}
			}
		}
	})
}

// republish begins to publish the volumes of a driver again and again, or ends that, as what the
// cluster says of the driver wants it by now. It returns at once: each waits for its turn.
func (c *Volumes) republish(driver string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, st := range c.volumes {
		if id.driver == driver && !st.looking {
			st.looking = c.beginLocked(func() { c.republishOne(id) })
		}
	}
}

func (c *Volumes) republishOne(id volumeID) {
	st, leave, err := c.enter(c.life, id)
	if err != nil {
		return
	}
	defer leave()
	c.mu.Lock()
	st.looking = false // what changes from now on is looked at anew
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.life, c.cfg.Timeout)
	defer cancel()
	object, err := c.deps.Objects.CSIDriver(ctx, id.driver)
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("It cannot be read whether a CSI driver's volumes are to be published again; they are or are not as before", "driver", id.driver, "err", err)
		return
	}
	wants := err == nil && isTrue(object.Spec.RequiresRepublish)
	for dir, p := range st.published {
		switch {
		case wants && p.end == nil && p.wanted.pod != nil:
			c.publishAgain(ctx, st, p.wanted)
		case !wants && p.end != nil:
			p.end()
			st.published[dir].end = nil
		}
	}
}

// errGone says that a volume is there no more.
var errGone = errors.New("the volume is gone")

// publishOnce publishes a volume that is there.
func (c *Volumes) publishOnce(ctx context.Context, w wanted) error {
	st, leave, err := c.enter(ctx, w.id())
	if err != nil {
		return err
	}
	defer leave()
	if ctx.Err() != nil {
		return ctx.Err() // taken down meanwhile
	}
	if w.block {
		return c.publishDeviceOnce(ctx, st, &w)
	}
	if now, err := readVolumeData(w.dir); err != nil || now != w.data {
		return errGone
	}
	_, err = c.publish(ctx, st, &w, true)
	return err
}

// publishDeviceOnce publishes a device that is there.
func (c *Volumes) publishDeviceOnce(ctx context.Context, st *state, w *wanted) error {
	at := c.blockPlaces(w.data.SpecVolID, w.pod.UID)
	if now, err := readVolumeData(at.data); err != nil || now.id() != w.id() || !isLink(w.dir) {
		return errGone
	}
	_, err := c.publishDevice(ctx, st, w, at)
	return err
}
