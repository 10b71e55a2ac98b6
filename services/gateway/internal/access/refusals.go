package access

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/inflight"
)

// How many questions about tokens that nobody has may go to the apiserver: so many at once
// and so many a second of one address, and in all: of strangers, and of those who have
// standing. A token that is somebody's costs nothing, nor does one that was good before.
const (
	burstOfOne, rateOfOne             = 32, 5
	burstOfStrangers, rateOfStrangers = 192, 30
	burstOfFamiliar, rateOfFamiliar   = 64, 10
	// mostAddresses bounds those that are remembered; others share one allowance.
	mostAddresses = 4096
)

const (
	// turnTime is how long a question waits for its turn when strangers' are spent: few
	// addresses keep them so for as long as they like.
	turnTime = 3 * time.Second
	// mostTurns is how many wait, and turnsOfOne how many of one address.
	mostTurns, turnsOfOne = 256, 4
)

// standing is what is known of who shows a token that is not known.
type standing int

const (
	stranger standing = iota
	// familiar: somebody was let in from the address not long ago, who may have a new token.
	familiar
	// trusted: the connection is of somebody who was let in.
	trusted
)

// refusals bound how many invented tokens a stranger has the apiserver asked about in a
// time: the answers are kept, but each invented token is another. What strangers may ask
// together is shared out by turns: next is always the address that had its last turn the
// longest time ago, so that many who ask without end keep nobody waiting who asks once.
// The zero value is ready.
type refusals struct {
	mu       sync.Mutex
	all      allowance // of strangers
	familiar allowance
	of       map[string]*allowance
	waiting  []*turn // in the order in which they came
	timer    *time.Timer
}

// allowance is refilled with time. The zero value is full.
type allowance struct {
	spent float64
	at    time.Time
	turn  time.Time // when it had its last
	turns int       // that wait
}

// spentNow is what of it is spent.
func (a *allowance) spentNow(now time.Time, rate float64) float64 {
	a.spent = max(0, a.spent-now.Sub(a.at).Seconds()*rate)
	a.at = now
	return a.spent
}

func (a *allowance) giveBack() { a.spent = max(0, a.spent-1) }

// turn is a question that waits.
type turn struct {
	of *allowance
	// over is closed when it has had its turn, or another has taken its place.
	over chan struct{}
	had  bool // under the lock, or after over
}

// ask takes one question of an address (host:port), for which it may wait, or is false when
// there were too many. Who took it for a token that is somebody's gives it back.
func (r *refusals) ask(ctx context.Context, address string, who standing) (giveBack func(), ok bool) {
	name := inflight.HostOf(address)
	if who == trusted {
		name += " trusted" // whatever others of the address do
	}
	now := time.Now()
	r.mu.Lock()
	one := r.hostLocked(name, now)
	if one.spentNow(now, rateOfOne)+1 > burstOfOne {
		r.mu.Unlock()
		return nil, false
	}
	one.spent++
	if who != stranger && r.familiar.spentNow(now, rateOfFamiliar)+1 <= burstOfFamiliar {
		r.familiar.spent++
		r.mu.Unlock()
		return r.back(one, &r.familiar), true
	}
	mine := r.queueLocked(one)
	r.serveLocked(now)
	r.mu.Unlock()
	if mine != nil && r.wait(ctx, mine) {
		back := r.back(one, &r.all)
		return func() {
			back()
			r.mu.Lock()
			defer r.mu.Unlock()
			one.turn = time.Time{} // it cost nothing
		}, true
	}
	r.back(one)()
	return nil, false
}

// back returns what gives one question back to each of allowances.
func (r *refusals) back(allowances ...*allowance) func() {
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, a := range allowances {
			a.giveBack()
		}
		r.serveLocked(time.Now())
	}
}

// queueLocked returns the turn of a question; nil when too many wait, all of them longer.
func (r *refusals) queueLocked(one *allowance) *turn {
	if one.turns >= turnsOfOne {
		return nil
	}
	if len(r.waiting) >= mostTurns {
		last := r.waiting[0]
		for _, t := range r.waiting {
			if t.of.turn.After(last.of.turn) {
				last = t
			}
		}
		if !last.of.turn.After(one.turn) {
			return nil
		}
		r.removeLocked(last)
		close(last.over)
	}
	mine := &turn{of: one, over: make(chan struct{})}
	r.waiting = append(r.waiting, mine)
	one.turns++
	return mine
}

func (r *refusals) removeLocked(t *turn) {
	if at := slices.Index(r.waiting, t); at >= 0 {
		r.waiting = slices.Delete(r.waiting, at, at+1)
		t.of.turns--
	}
}

// serveLocked gives turns to those who wait, as many as there are.
func (r *refusals) serveLocked(now time.Time) {
	for len(r.waiting) > 0 {
		if lack := r.all.spentNow(now, rateOfStrangers) + 1 - burstOfStrangers; lack > 0 {
			r.lookAgainLocked(time.Duration(lack / rateOfStrangers * float64(time.Second)))
			return
		}
		next := r.waiting[0]
		for _, t := range r.waiting {
			if t.of.turn.Before(next.of.turn) {
				next = t
			}
		}
		r.removeLocked(next)
		r.all.spent++
		next.of.turn, next.had = now, true
		close(next.over)
	}
}

// lookAgainLocked has turns given after a while.
func (r *refusals) lookAgainLocked(after time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(after+time.Millisecond, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.serveLocked(time.Now())
	})
}

// wait waits for a turn.
func (r *refusals) wait(ctx context.Context, mine *turn) bool {
	timeout := time.NewTimer(turnTime)
	defer timeout.Stop()
	select {
	case <-mine.over:
	case <-timeout.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(mine)
	return mine.had
}

// hostLocked is an address's allowance.
func (r *refusals) hostLocked(name string, now time.Time) *allowance {
	if one := r.of[name]; one != nil {
		return one
	}
	if len(r.of) >= mostAddresses {
		for other, one := range r.of {
			if one.spentNow(now, rateOfOne) == 0 && one.turns == 0 {
				delete(r.of, other)
			}
		}
	}
	if len(r.of) >= mostAddresses {
		name = ""
		if one := r.of[name]; one != nil {
			return one
		}
	}
	if r.of == nil {
		r.of = map[string]*allowance{}
	}
	one := &allowance{at: now}
	r.of[name] = one
	return one
}
