package csi

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// publishAgain publishes a volume again and again, as long as it is there. The caller
// has its turn; of its ctx only the logger lasts.
func (c *Volumes) publishAgain(ctx context.Context, st *state, r volume.Request, data volumeData) {
	ctx, cancel := context.WithCancel(klog.NewContext(c.life, klog.FromContext(ctx)))
	st.again = cancel
	c.work.Go(func() {
		defer cancel()
		failing := false
		for {
			t := time.NewTimer(c.cfg.Again + rand.N(c.cfg.Again/2))
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
			err := c.publishOnce(ctx, r, data)
			if ctx.Err() != nil || errors.Is(err, errGone) {
				return
			}
			if (err != nil) != failing {
				failing = err != nil
				klog.FromContext(ctx).Info("Publishing a volume again: it stays as it is when that fails, and is tried again", "pod", klog.KObj(r.Pod), "failing", failing, "err", err)
			}
		}
	})
}

// errGone says that a volume is there no more.
var errGone = errors.New("the volume is gone")

// publishOnce publishes a volume that is there.
func (c *Volumes) publishOnce(ctx context.Context, r volume.Request, data volumeData) error {
	_, leave, err := c.enter(ctx, data.id())
	if err != nil {
		return err
	}
	defer leave(false)
	if ctx.Err() != nil {
		return ctx.Err() // taken down meanwhile
	}
	if now, err := readVolumeData(r.Dir); err != nil || now != data {
		return errGone
	}
	_, err = c.publish(ctx, r, data, true)
	return err
}
