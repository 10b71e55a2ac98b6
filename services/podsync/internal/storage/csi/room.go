package csi

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
)

// Cluster lets what it says of drivers be followed; *objects.Store has it.
type Cluster interface {
	FollowDriver(name string)
	LeaveDriver(name string)
}

// room is how often a driver is asked how many volumes the node can have, which may
// change: at the period of its CSIDriver, and at once when it has no more room.
// Source: KEP-4876
type room struct {
	changed, exhausted wake.Signal
	stop               context.CancelFunc
}

func newRoom() room {
	return room{changed: wake.New(), exhausted: wake.New(), stop: func() {}}
}

// rooms are the goroutines that ask; none begins once they are closed.
type rooms struct {
	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

func (r *rooms) start(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Go(f)
	}
}

func (r *rooms) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.work.Wait()
}

// DriverChanged tells that what the cluster says of a driver has changed. It returns at
// once.
func (c *Volumes) DriverChanged(name string) {
	c.inUse.driverSaid()
	c.republish(name)
	if r, err := c.drivers.find(name); err == nil {
		r.room.changed.Set()
	}
}

// migratedKey is of the contexts of calls for a volume of before CSI.
type migratedKey struct{}

// called tells of a call of a driver that has ended. One that lacks what it takes to say
// how many volumes there may be is not asked for that at once.
func (c *Volumes) called(ctx context.Context, driver string, done peer.Call) {
	migrated, _ := ctx.Value(migratedKey{}).(bool)
	c.deps.Metrics.CSI(driver, done.Method, done.Code, migrated, done.Took)
	if !done.Exhausted || done.Info {
		return
	}
	if r, err := c.drivers.find(driver); err == nil {
		r.room.exhausted.Set()
	}
}

// followRoom asks a driver again and again until it is registered no more. Of ctx only
// the logger lasts.
func (c *Volumes) followRoom(ctx context.Context, r *registered) {
	if c.deps.Cluster == nil {
		return
	}
	ctx, r.room.stop = context.WithCancel(klog.NewContext(c.life, klog.FromContext(ctx)))
	c.deps.Cluster.FollowDriver(r.plugin.Name)
	c.rooms.start(func() {
		for c.awaitRoom(ctx, r) {
			c.askRoom(ctx, r)
		}
	})
}

// awaitRoom waits until a driver is to be asked; false when it is registered no more.
func (c *Volumes) awaitRoom(ctx context.Context, r *registered) bool {
	period := c.roomPeriod(ctx, r.plugin.Name)
	var due <-chan time.Time
	if period > 0 {
		timer := time.NewTimer(period)
		defer timer.Stop()
		due = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-r.room.exhausted:
			if period > 0 {
				return true
			}
		case <-r.room.changed:
			if now := c.roomPeriod(ctx, r.plugin.Name); now != period {
				return c.awaitRoom(ctx, r)
			}
		}
	}
}

// roomPeriod is how often a driver is to be asked; zero for never.
func (c *Volumes) roomPeriod(ctx context.Context, name string) time.Duration {
	object, err := c.deps.Objects.CSIDriver(ctx, name)
	if err != nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0 // it is told when that changes
	}
	return time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// askRoom asks a driver, and tells what is new. One that does not answer well is as it
// was.
func (c *Volumes) askRoom(ctx context.Context, r *registered) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	info, err := askInfo(limited, r.plugin.Name, r.Driver)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("A CSI driver does not say how many volumes the node can have; it is asked again", "driver", r.plugin.Name, "err", err)
		}
		return
	}
	c.drivers.renew(r, info)
}

// renew takes what a driver says anew of itself, unless it is registered no more.
func (d *drivers) renew(r *registered, info Info) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[r.plugin.Name] != r || sameInfo(r.said, info) {
		return
	}
	r.said = info
	d.told.Set(r.plugin.Name, State{Info: info})
}

func sameInfo(a, b Info) bool {
	return a.NodeID == b.NodeID && a.MaxVolumes == b.MaxVolumes && maps.Equal(a.Topology, b.Topology)
}

// noRoomTimeout bounds the look at why a volume is not attached.
const noRoomTimeout = 10 * time.Second

// noRoom looks whether a volume that was waited for is not attached because the node has
// no more room for those of its driver, which is asked anew how many there may be then.
// Drivers that say nothing of a period do not say so.
func (c *Volumes) noRoom(ctx context.Context, w *wanted) bool {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noRoomTimeout)
	defer cancel()
	if c.roomPeriod(ctx, w.data.DriverName) == 0 {
		return false
	}
	a, err := c.deps.Objects.VolumeAttachment(ctx, w.pod.UID, w.pod.Namespace, w.data.AttachmentID)
	if err != nil || a.Status.AttachError == nil || !peer.Exhausted(a.Status.AttachError.ErrorCode) {
		return false
	}
	if r, err := c.drivers.find(w.data.DriverName); err == nil {
		r.room.exhausted.Set()
	}
	return true
}
