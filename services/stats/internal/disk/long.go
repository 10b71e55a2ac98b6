package disk

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// longest bounds a long walk.
	longest = 10 * time.Minute
	// lapse is how long what was counted before stays the figure though it is not counted
	// again.
	lapse = time.Hour
	// fresh is how many periods ago the last whole walk of a directory began that takes
	// longer than the deadline for it to be Partly.
	fresh = 3
	// pacing is the part of a processor that a long walk takes, burst for how long at once.
	pacing = 10
	burst  = 10 * time.Millisecond
)

// kind is how a directory is measured.
type kind int

const (
	// background is in its turn, until the deadline.
	background kind = iota
	// urgent is before all others, and brief.
	urgent
	// long is beside the others, slowly.
	long
)

// runLong walks one after the other that take longer than the deadline, until ctx is done.
func (t *Trees) runLong(ctx context.Context) {
	for {
		dir, ok := t.popLong()
		if ok {
			t.measure(ctx, dir, long)
		}
		if ctx.Err() != nil {
			return
		}
		if ok {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wakeLong:
		}
	}
}

// popLong is the next one that somebody still asks for.
func (t *Trees) popLong() (Directory, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		dir, _, ok := t.longs.pop(false)
		if !ok {
			return dir, false
		}
		e := t.entries[dir.Path]
		if e != nil && e.tooLong && time.Since(e.asked) < t.cfg.Forget {
			return dir, true
		}
		if e != nil {
			e.longQueued = false
		}
	}
}

// longLocked has a tree walked whole that takes longer than the deadline, if it is due.
func (t *Trees) longLocked(e *tree, dir Directory) {
	if e.tooLong && !e.longQueued && !time.Now().Before(e.longNext) {
		e.longQueued = true
		t.longs.push(dir, false)
		t.wakeLong.Set()
	}
}

// paced returns what rests, each time that it is called, for as long as the caller's thread
// has to for its share of a processor; the caller is locked to it. A walk that waits for the
// disk does not rest besides.
func paced(ctx context.Context) (rest func()) {
	used := threadTime()
	return func() {
		work := threadTime() - used
		if work < burst {
			return
		}
		over := time.NewTimer(work * (pacing - 1))
		defer over.Stop()
		select {
		case <-over.C:
		case <-ctx.Done():
		}
		used = threadTime()
	}
}

// threadTime is for how long this thread has had a processor.
func threadTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// walk measures a directory, as its kind is done, or asks what its filesystem counts.
func (t *Trees) walk(ctx context.Context, dir Directory, k kind) (m Measured, h how, err error) {
	m, count, done, err := t.counted(ctx, dir, k)
	if done {
		return m, asked, err
	}
	if count != nil || k == urgent && dir.Counted != (Volume{}) {
		h = compared
	}
	rest := func() {}
	if k == long {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		rest = paced(ctx)
	}
	m, err = t.measureOne(ctx, dir, func(soFar Measured) {
		t.count(dir, k, soFar)
		rest()
	})
	if err == nil {
		m = t.proves(ctx, dir, k, count, m)
	}
	return m, h, err
}

// take makes a walk's result the figure if it is whole. Of one that is not, what it has
// counted is there at least; but final, which had its time, it is the figure when that of
// before is too old: else nobody noticed what was removed.
func (e *tree) take(result Measured, began time.Time, whole, final bool) {
	switch {
	case whole && began.Before(e.whole): // Another was faster.
	case whole:
		e.last, e.valid, e.whole = result, true, began
	case final && e.valid && result.Tree != (Tree{}) && time.Since(e.last.Time) >= lapse:
		e.last = result
	default:
		e.last, e.valid = atLeast(e.last, e.valid, result)
	}
}

// most is the last measurement, or what those under way have counted where that is more. It
// stays so for up to lapse, for who is ranked by it; but what was removed may have been
// written elsewhere since, and so it is Partly long before. One that was walked to its end in
// time is not, be it Deeper: else any number of these had each as much as all may. Of one that
// began before the last that has counted all, nothing is taken.
func (e *tree) most(period time.Duration) (m Measured, known bool) {
	m, known = e.last, e.valid
	for _, soFar := range []Measured{e.soFar, e.longSoFar} {
		if !soFar.Time.Before(e.whole) {
			m, known = atLeast(m, known, soFar)
		}
	}
	m.Slow = e.tooLong
	m.Partly = e.tooLong && time.Since(e.whole) >= fresh*period
	return m, known
}

// atLeast is what was measured, or counted since where that is more. It is as old as the
// oldest of its numbers.
func atLeast(m Measured, known bool, counted Measured) (Measured, bool) {
	switch {
	case counted.Tree == (Tree{}) || known && counted.Bytes <= m.Bytes && counted.Inodes <= m.Inodes:
		return m, known
	case known && (counted.Bytes < m.Bytes || counted.Inodes < m.Inodes) && m.Time.Before(counted.Time):
		counted.Time = m.Time
	}
	if known && counted.Bytes <= m.Bytes {
		counted.Bytes, counted.Counted, counted.Unnamed.Bytes = m.Bytes, m.Counted, m.Unnamed.Bytes
	}
	if known && counted.Inodes <= m.Inodes {
		counted.Inodes, counted.Unnamed.Inodes = m.Inodes, m.Unnamed.Inodes
	}
	return counted, true
}
