package access

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/inflight"
)

// How many questions about tokens that nobody has may go to the apiserver: so many at
// once and so many a second of one address, and in all: of unknown clients, and of those
// who have standing. A token that is somebody's costs nothing, nor does one that was good
// before, and the first question of a connection costs nothing of its address's: many may
// have one address, pods behind a router or of a node's IPv6 network, and who of them has
// a new token comes with a new connection, while who invents them has to make one for
// each.
const (
	burstOfOne, rateOfOne           = 32, 5
	burstOfUnknown, rateOfUnknown   = 192, 30
	burstOfFamiliar, rateOfFamiliar = 64, 10
	// mostAddresses bounds those that are remembered; others share one allowance.
	mostAddresses = 4096
)

const (
	// turnTime is how long a question waits for its turn when unknown clients' are spent:
	// few addresses keep them so for as long as they like.
	turnTime = 3 * time.Second
	// mostTurns is how many wait, and turnsOfOne how many of one connection.
	mostTurns, turnsOfOne = 256, 4
	// newAgain is how long a connection asks nothing until it counts as a new one.
	newAgain = 10 * time.Second
	// mostSources bounds the machines and connections that are remembered.
	mostSources = 8192
)

// standing is what is known of who shows a token that is not known.
type standing int

const (
	unknown standing = iota
	// familiar: somebody was let in from the address not long ago, who may have a new token.
	familiar
	// trusted: the connection is of somebody who was let in.
	trusted
)

// refusals bound how many invented tokens an unknown client has the apiserver asked about
// in a time: the answers are kept, but each invented token is another. What unknown
// clients may ask together is shared out by turns: next is always the address that had
// its last turn the longest time ago, of an address the machine, of a machine the
// connection, and of those who had none whoever is drawn, so that many who ask without
// end keep nobody waiting who asks once. The zero value is ready.
type refusals struct {
	mu       sync.Mutex
	all      allowance // of unknown clients
	familiar allowance
	of       map[string]*allowance
	sources  map[string]time.Time // when machines (host) and connections (host:port) had their last turn
	waiting  []*turn              // in the order in which they came
	timer    *time.Timer
}

// allowance is refilled with time. The zero value is full. It is no rate.Limiter of
// golang.org/x/time: what was taken of one cannot be given back when it turns out to have
// cost nothing.
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

// lacks is how long it takes until one more may be spent; 0 or less: it may.
func (a *allowance) lacks(now time.Time, rate, burst float64) time.Duration {
	return time.Duration((a.spentNow(now, rate) + 1 - burst) / rate * float64(time.Second))
}

func (a *allowance) giveBack() { a.spent = max(0, a.spent-1) }

// turn is a question that waits.
type turn struct {
	of *allowance
	// address is host:port, machine its host: of an IPv6 network there are many.
	address, machine string
	// drawn says who of equals comes first.
	drawn uint64
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
	if who != unknown && one.lacks(now, rateOfOne, burstOfOne) <= 0 && r.familiar.lacks(now, rateOfFamiliar, burstOfFamiliar) <= 0 {
		one.spent++
		r.familiar.spent++
		r.mu.Unlock()
		return r.back(one, &r.familiar), true
	}
	mine := r.queueLocked(one, address)
	if mine != nil {
		r.serveLocked(now)
	}
	r.mu.Unlock()
	if mine == nil || !r.wait(ctx, mine) {
		return nil, false
	}
	back := r.back(one, &r.all)
	return func() {
		back()
		r.mu.Lock()
		defer r.mu.Unlock()
		one.turn = time.Time{} // it cost nothing
		delete(r.sources, mine.machine)
		delete(r.sources, address)
	}, true
}

// machineOf is the host of an address (host:port).
func machineOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
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

// queueLocked returns the turn of a question; nil when too many wait that come before it.
func (r *refusals) queueLocked(one *allowance, address string) *turn {
	same := 0
	for _, t := range r.waiting {
		if t.address == address && t.of == one {
			same++
		}
	}
	if same >= turnsOfOne {
		return nil
	}
	mine := &turn{of: one, address: address, machine: machineOf(address), drawn: rand.Uint64(), over: make(chan struct{})} //nolint:gosec // Nobody sees it.
	if len(r.waiting) >= mostTurns {
		last := mine
		for _, t := range r.waiting {
			if r.beforeLocked(last, t) {
				last = t
			}
		}
		if last == mine {
			return nil
		}
		r.removeLocked(last)
		close(last.over)
	}
	r.waiting = append(r.waiting, mine)
	one.turns++
	return mine
}

// beforeLocked says whether a's turn comes before b's.
func (r *refusals) beforeLocked(a, b *turn) bool {
	order := a.of.turn.Compare(b.of.turn)
	if order == 0 && a.of == b.of {
		order = cmp.Or(r.sources[a.machine].Compare(r.sources[b.machine]), r.sources[a.address].Compare(r.sources[b.address]))
	}
	return order < 0 || order == 0 && a.drawn < b.drawn
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
		wait := r.all.lacks(now, rateOfUnknown, burstOfUnknown)
		if wait > 0 {
			r.lookAgainLocked(wait)
			return
		}
		var next *turn
		for _, t := range r.waiting {
			if lacks := r.lacksLocked(t, now); lacks > 0 {
				if wait <= 0 || lacks < wait {
					wait = lacks
				}
			} else if next == nil || r.beforeLocked(t, next) {
				next = t
			}
		}
		if next == nil {
			r.lookAgainLocked(wait)
			return
		}
		r.removeLocked(next)
		r.all.spent++
		next.of.spent = min(next.of.spent+1, burstOfOne)
		next.of.turn, next.had = now, true
		r.noteLocked(now, next.machine, next.address)
		close(next.over)
	}
}

// lacksLocked is how long one waits at least: a connection's first question for nothing of
// its address's.
func (r *refusals) lacksLocked(t *turn, now time.Time) time.Duration {
	if last, asked := r.sources[t.address]; !asked || now.Sub(last) >= newAgain {
		return 0
	}
	return t.of.lacks(now, rateOfOne, burstOfOne)
}

// noteLocked notes that somebody had a turn. Where too many are remembered, those of long
// ago go first, and others, who then count as new, if these do not suffice.
func (r *refusals) noteLocked(now time.Time, names ...string) {
	if r.sources == nil {
		r.sources = map[string]time.Time{}
	}
	if len(r.sources) >= mostSources {
		maps.DeleteFunc(r.sources, func(_ string, last time.Time) bool { return now.Sub(last) >= newAgain })
		for name := range r.sources {
			if len(r.sources) < mostSources*3/4 {
				break
			}
			delete(r.sources, name)
		}
	}
	for _, name := range names {
		r.sources[name] = now
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
