package sampler

import (
	"context"
	"sync"
	"time"
)

const (
	// countTime is how long the files of one cgroup's processes may be counted; of
	// more than can be counted in it only those are shown that were.
	countTime = 2 * time.Second
	// countWait is how long a measurement waits for counts in all. Those that do not
	// come are shown as they were before.
	countWait = 2 * time.Second
)

// opened keeps the counts of open files. A container decides by itself what it costs
// to count its own: thousands of processes may share a table of a million files. So
// it is done beside the measurements, one cgroup after the other, for a bounded time.
// Safe for concurrent use.
type opened struct {
	count func(ctx context.Context, pids []int) (files, sockets uint64)
	place chan struct{}

	mu     sync.Mutex
	byName map[string]*openFiles
}

type openFiles struct {
	files, sockets uint64
	next, seen     time.Time
	running        chan struct{} // closed when the count under way ends; nil when none is
}

func newOpened(count func(ctx context.Context, pids []int) (files, sockets uint64)) *opened {
	return &opened{count: count, place: make(chan struct{}, 1), byName: map[string]*openFiles{}}
}

// get returns the counts of a cgroup with these processes. Old ones are made again,
// and waited for until ctx is done.
func (o *opened) get(ctx context.Context, name string, pids []int) (files, sockets uint64) {
	now := time.Now()
	o.mu.Lock()
	x := o.byName[name]
	if x == nil {
		x = &openFiles{}
		o.byName[name] = x
	}
	x.seen = now
	if x.running == nil && !now.Before(x.next) {
		x.running = make(chan struct{})
		go o.run(context.WithoutCancel(ctx), x, pids, x.running)
	}
	running := x.running
	o.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return x.files, x.sockets
}

// run counts in its turn.
func (o *opened) run(ctx context.Context, x *openFiles, pids []int, done chan struct{}) {
	o.place <- struct{}{}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	began := time.Now()
	files, sockets := o.count(ctx, pids)
	took := time.Since(began)
	cancel()
	<-o.place
	o.mu.Lock()
	defer o.mu.Unlock()
	x.files, x.sockets, x.running = files, sockets, nil
	x.next = time.Now().Add(max(keepFor, keepShare*took))
	close(done)
}

// forget drops what was not asked for since a time.
func (o *opened) forget(before time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, x := range o.byName {
		if x.running == nil && x.seen.Before(before) {
			delete(o.byName, name)
		}
	}
}
