package evict

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// persists is for how long a podsync that answers otherwise is asked again for what it does
// not reclaim, and convincing how often: memory does not wait for a reclaim, but a disk
// that fills would, for ever.
const persists = time.Minute

// undone are the reclaims in a row that podsync never did: it was away, was killed, or did not
// know all its pods. Nobody knows then what can be freed, and no pod goes for that.
type undone struct {
	// owed: the last one was, and ended at.
	owed bool
	at   time.Time
	// behind: it was for what a pod that was evicted has left.
	behind bool
	// times is how many were begun when podsync answered and had had its time to hear of its
	// pods, and since is when the first of them was.
	times int
	since time.Time
	// spent: it was asked often enough, and the next pod that is chosen goes without another
	// try; till then podsync may be away.
	spent bool
	// over is since when it is heard that the shortage is; zero while it is not.
	over time.Time
}

// undone says whether podsync never did a reclaim that has finished, or not all of it.
func (r *reclaim) undone() bool {
	return errors.Is(r.err, rpcerr.ErrUnavailable) || errors.Is(r.err, rpcerr.ErrTimeout) ||
		errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, context.Canceled)
}

// given says whether podsync was asked often and for long enough: then it counts as a reclaim
// that failed.
func (u *undone) given(now time.Time) bool {
	return u.times >= convincing || u.times > 0 && now.Sub(u.since) >= persists
}

// again notes that one is begun, and says whether it is for what a pod has left.
func (u *undone) again(now time.Time) (behind bool) {
	if !u.owed {
		return false
	}
	if u.times++; u.times == 1 {
		u.since = now
	}
	return u.behind
}

// takes notes what came of one that has finished, and says whether podsync is to do it again.
func (u *undone) takes(r *reclaim) bool {
	if !r.undone() {
		*u = undone{}
		return false
	}
	if u.given(time.Now()) {
		*u = undone{spent: true, at: r.at, over: u.over}
		return false
	}
	u.owed, u.at, u.behind = true, r.at, r.behind
	return true
}

// waives says whether podsync is not asked again though it owes a reclaim.
func (u *undone) waives() bool {
	if u.owed && u.given(time.Now()) {
		*u = undone{spent: true, at: u.at, over: u.over}
	}
	return u.spent
}

// lapse forgets what podsync did not reclaim once the shortage was over for a while, by itself:
// one that is over for a moment is the same again. heard is when the disk was heard of last, and
// nobody knows what it was between that and the time before.
func (u *undone) lapse(heard time.Time, short bool) {
	switch {
	case short:
		u.over = time.Time{}
	case u.over.IsZero():
		u.over = heard
	case heard.Sub(u.over) >= interval:
		*u = undone{over: heard}
	}
}

// forgets says whether a reclaim that has finished is to be done again, and is done with it if so.
func (l *Loop) forgets(r *reclaim) bool {
	if !r.undone() || l.undone.given(time.Now()) {
		return false
	}
	l.learn()
	return true
}

// ready says whether podsync can be asked again for what it did not do: not at once, and
// not before it says which pods there are.
func (l *Loop) ready(ctx context.Context, m pressure.Met) bool {
	if at := l.undone.at.Add(soon); time.Now().Before(at) {
		l.next[m.Signal] = at
		return false
	}
	_, ok := l.allKnown(ctx, m)
	return ok
}

// outlived says whether podsync was started anew since it was asked to reclaim: it may have
// been stopped in the middle of it, and is to do it again.
func (l *Loop) outlived(ctx context.Context, m pressure.Met, pods Pods) bool {
	r := l.reclaim
	if pressure.KindOf(m.Signal) != pressure.Disk || r == nil || !r.finished() || r.what.Epoch == 0 || pods.Epoch == 0 || r.what.Epoch == pods.Epoch {
		return false
	}
	r.err = fmt.Errorf("%w: podsync was started anew since it was asked to reclaim", rpcerr.ErrUnavailable)
	if !l.forgets(r) {
		return false
	}
	l.hold(ctx, m, soon, r.err.Error())
	return true
}
