package csi

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
)

// newPause is for how long a driver is left alone that loses its connection: one that ends at each
// call is called by no more than that.
func newPause() *backoff.Backoff {
	return backoff.New(backoff.Config{Initial: 200 * time.Millisecond, Max: time.Minute, Jitter: .1, ResetAfter: 10 * time.Minute})
}

// lost notes that a pod's call of a driver failed as nobody was there: one that was killed leaves
// its socket, and may come back without registering anew. The pod is woken when it is connected
// again, or registers.
func (c *Volumes) lost(r *registered, uid types.UID, err error) {
	lost, broken := peer.Lost(err)
	if !lost {
		return
	}
	d, name := c.drivers, r.plugin.Name
	d.mu.Lock()
	if now := d.all[name]; now != nil && now != r {
		d.mu.Unlock()
		d.wake(name, []types.UID{uid}) // it has registered meanwhile, and need not again
		return
	}
	d.waitLocked(name, uid)
	begin := broken && !r.awaited && d.all[name] == r
	r.awaited = r.awaited || begin
	d.mu.Unlock()
	if begin {
		c.begin(func() { c.await(r) })
	}
}

// await waits until a driver is connected again, and wakes the pods that wait for it.
func (c *Volumes) await(r *registered) {
	d, name := c.drivers, r.plugin.Name
	there := r.pause.Wait(c.life) == nil && r.Connect(c.life)
	d.mu.Lock()
	r.awaited = false
	if !there || d.all[name] != r {
		d.mu.Unlock()
		return
	}
	wake := d.cameLocked(name)
	d.mu.Unlock()
	d.wake(name, wake)
}
