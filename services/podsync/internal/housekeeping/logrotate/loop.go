package logrotate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	// soonest is the shortest time between two looks at a log, and so between
	// two rotations, of which the names differ by the second.
	soonest = time.Second
	// longestRetry bounds the waits of a log that cannot be rotated.
	longestRetry = 5 * time.Minute
	// slotTime is how long a rotation may hold its place among the workers.
	slotTime = time.Second
)

// tracked is the log of one running container.
type tracked struct {
	container podstate.ContainerRow
	// next is when it is looked at; it is not while a rotation is under way.
	next time.Time
	busy bool
	// growth is what is known of its size.
	growth growth
	// failures in a row.
	failures int
}

// outcome is what a rotation came to.
type outcome struct {
	id  string
	err error
	// wait is how long the log is left alone when it went well.
	wait time.Duration
}

// loop decides when each log is looked at. Everything in it belongs to run's
// goroutine.
type loop struct {
	r     *Rotator
	log   logr.Logger
	logs  map[string]*tracked
	done  chan outcome
	began time.Time
	work  sync.WaitGroup
}

func (l *loop) run(ctx context.Context, frames <-chan frame) {
	defer l.work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-frames:
			l.take(f)
		case o := <-l.done:
			l.finished(o)
		case <-timer.C:
		}
		l.look(ctx)
		if next, any := l.next(); any {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// take begins and ends the watch over logs.
func (l *loop) take(f frame) {
	for key, entry := range f.Changed {
		if entry.Container != nil {
			if err := l.r.link(*entry.Container); err != nil {
				l.log.Error(err, "Could not link a container's log; log collectors will not find it", "path", entry.Container.LogPath)
			}
		}
		c, ok := l.r.logged(entry)
		if !ok {
			l.forget(key.ID)
			continue
		}
		l.r.setRunning(c.LogPath, true)
		if t := l.logs[c.ID]; t != nil {
			t.container = c
		} else {
			l.logs[c.ID] = &tracked{container: c, next: time.Now()}
		}
	}
	for _, key := range f.Removed {
		l.forget(key.ID)
	}
}

func (l *loop) forget(id string) {
	if t := l.logs[id]; t != nil {
		l.r.setRunning(t.container.LogPath, false)
		delete(l.logs, id)
	}
}

// next is when the next log is due.
func (l *loop) next() (next time.Time, any bool) {
	for _, t := range l.logs {
		if !t.busy && (!any || t.next.Before(next)) {
			next, any = t.next, true
		}
	}
	return next, any
}

// look looks at the logs that are due.
func (l *loop) look(ctx context.Context) {
	now, most := time.Now(), l.r.maxSize.Load()
	for _, t := range l.logs {
		if t.busy || t.next.After(now) {
			continue
		}
		if most <= 0 { // nothing is rotated, until that is another
			t.next = l.tick(now)
			continue
		}
		info, err := os.Lstat(t.container.LogPath)
		if err == nil {
			t.growth.saw(info.Size(), now, t.container.StartedAt)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			l.start(ctx, t, l.r.reopen, l.r.cfg.Interval) // a runtime may write none
		case err != nil || !info.Mode().IsRegular():
			t.next = l.tick(now) // nothing that can be rotated; it may become one
		case info.Size() >= most:
			l.start(ctx, t, l.r.rotate, soonest)
		default:
			t.next = l.after(now, t.growth.wait(most-info.Size(), now, t.container.StartedAt))
		}
	}
}

// start works on a log beside the loop.
func (l *loop) start(ctx context.Context, t *tracked, do func(context.Context, podstate.ContainerRow) error, wait time.Duration) {
	t.busy = true
	c := t.container
	l.work.Go(func() {
		release, err := l.r.slot(ctx)
		if err == nil {
			err = do(ctx, c)
			release()
		}
		select {
		case l.done <- outcome{c.ID, err, wait}:
		case <-ctx.Done():
		}
	})
}

// slot waits for a place among the workers. The place is given up when it has
// been held too long, so that a runtime that hangs with one log does not hold
// the others up.
func (r *Rotator) slot(ctx context.Context) (release func(), err error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var once sync.Once
	free := func() { once.Do(func() { <-r.slots }) }
	timer := time.AfterFunc(slotTime, free)
	return func() { timer.Stop(); free() }, nil
}

// finished takes in what a rotation came to.
func (l *loop) finished(o outcome) {
	t := l.logs[o.id]
	if t == nil {
		return // it ended meanwhile
	}
	t.busy = false
	now := time.Now()
	if o.err == nil {
		if t.failures > 0 {
			l.log.Info("The log is rotated again", "container", o.id, "path", t.container.LogPath)
		}
		t.failures = 0
		t.growth.emptied(now)
		t.next = l.after(now, o.wait)
		return
	}
	if t.failures == 0 {
		l.log.Error(o.err, "Could not rotate a container's log; it grows until that works", "container", o.id, "path", t.container.LogPath)
	}
	t.failures++
	t.next = now.Add(min(l.r.cfg.Interval<<min(t.failures-1, 10), max(longestRetry, l.r.cfg.Interval)))
}

// after is the moment a wait ends. Waits of a whole interval end together.
func (l *loop) after(now time.Time, wait time.Duration) time.Time {
	if wait >= l.r.cfg.Interval {
		return l.tick(now)
	}
	return now.Add(max(wait, soonest))
}

// tick is the next moment at which all logs that do not grow are looked at.
func (l *loop) tick(now time.Time) time.Time {
	return l.began.Add((now.Sub(l.began)/l.r.cfg.Interval + 1) * l.r.cfg.Interval)
}

// growth is how fast a log grows.
type growth struct {
	at   time.Time
	size int64
	// rate in bytes per second; halves at each look at which it was less.
	rate float64
}

// saw takes in a look. Without an earlier one the log has grown since the start.
func (g *growth) saw(size int64, at, started time.Time) {
	since, from := g.at, g.size
	if since.IsZero() {
		since, from = started, 0
	}
	g.rate /= 2
	if took := at.Sub(since); took > 0 && size > from && !since.IsZero() {
		g.rate = max(g.rate, float64(size-from)/took.Seconds())
	} else if size <= from && g.rate < 1 {
		g.rate = 0
	}
	g.at, g.size = at, size
}

// emptied takes in that the log is a new file; its rate is as it was.
func (g *growth) emptied(at time.Time) { g.at, g.size = at, 0 }

// forever stands for a wait that nothing but the interval bounds.
const forever = time.Duration(1<<63 - 1)

// wait is how long to wait until the next look, when this much is left to the limit.
func (g *growth) wait(left int64, now, started time.Time) time.Duration {
	wait := forever
	if g.rate > 0 {
		if seconds := float64(left) * .75 / g.rate; seconds < (24 * time.Hour).Seconds() {
			wait = time.Duration(seconds * float64(time.Second))
		}
	}
	if age := now.Sub(started); age < time.Minute && !started.IsZero() {
		wait = min(wait, max(age, soonest))
	}
	return wait
}
