package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
)

// Memory defaults: five runtimes together must cost less than one kubelet.
const (
	// LeanGCPercent lets the heap grow by half between collections.
	LeanGCPercent = 50
	// settleAfter is when what the start needed is given back to the system.
	settleAfter = 30 * time.Second

	// often is how soon after one another so many collections in a row show that
	// the heap is too small for what goes on: a session over a WebSocket spends
	// a third of its time on collecting a small heap. One scrape is over by then.
	often  = 100 * time.Millisecond
	inARow = 8
	// roomWhenOften is by how many bytes the heap may grow between collections then,
	// mostPercent by how much of what is live.
	roomWhenOften = 16 << 20
	mostPercent   = 400
	// calmAfter is how long no collection must have been needed until the room is
	// given back.
	calmAfter = 3 * time.Second
)

// LeanMemory makes the Go runtime hold little: the heap grows by gcPercent
// between collections, and what only the start needed, code too, is given back
// after half a minute. While memory is used fast the heap may grow further, which is given
// back when that is over. GOGC in the environment goes before; GOMEMLIMIT is read
// by the runtime itself. It returns when ctx is done.
func LeanMemory(ctx context.Context, gcPercent int) {
	p := pace{base: gcPercent, now: gcPercent, live: liveHeap}
	p.set = func(percent int) { debug.SetGCPercent(percent) }
	if os.Getenv("GOGC") != "" {
		p.set = func(int) {}
	}
	p.set(p.now)
	p.follow(ctx, collections(ctx), func() {
		debug.FreeOSMemory()
		if err := releaseCode(); err != nil {
			klog.FromContext(ctx).V(2).Info("The pages of the executable stay in memory", "err", err)
		}
	})
}

// pace is how far the heap may grow between collections.
type pace struct {
	base, now int // percent of what is live
	set       func(percent int)
	live      func() uint64 // bytes
	last      time.Time     // collection
	soon      int           // how many in a row came so often
}

// follow goes with the collections until ctx is done; free gives memory back.
func (p *pace) follow(ctx context.Context, collected <-chan struct{}, free func()) {
	calm := time.NewTimer(settleAfter)
	defer calm.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-collected:
			if p.collected(time.Now()) {
				calm.Reset(calmAfter)
			}
		case <-calm.C:
			p.now = p.base
			p.set(p.now)
			free()
		}
	}
}

// collected notes a collection, and says whether the heap has room to give back.
func (p *pace) collected(at time.Time) bool {
	if at.Sub(p.last) >= often {
		p.soon = 0
	}
	p.soon++
	p.last = at
	if p.soon > inARow {
		room := mostPercent
		if live := p.live(); live > 0 {
			room = int(min(mostPercent, 100*roomWhenOften/live)) //nolint:gosec // at most mostPercent
		}
		if room = max(room, p.base); room != p.now {
			p.now = room
			p.set(room)
		}
	}
	return p.now != p.base
}

// liveHeap is what the last collection has found to be in use, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// collections tells of each collection until ctx is done: each one finds an
// object that nobody uses.
func collections(ctx context.Context) <-chan struct{} {
	told := wake.New()
	var lay func()
	lay = func() {
		runtime.AddCleanup(&[64]byte{}, func(struct{}) {
			if ctx.Err() != nil {
				return
			}
			lay() // before it is told: who hears it may collect at once
			told.Set()
		}, struct{}{})
	}
	lay()
	return told
}
