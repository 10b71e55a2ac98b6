package access

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/inflight"
)

// How many questions about tokens that nobody has may go to the apiserver: so many at once
// and so many a second of one address, and in all. A token that is somebody's costs
// nothing, nor does one that was good before.
const (
	burstOfOne, rateOfOne = 32, 5
	burstOfAll, rateOfAll = 256, 40
	// mostAddresses bounds those that are remembered; others share one allowance.
	mostAddresses = 4096
)

// refusals bound how many invented tokens a stranger has the apiserver asked about in a
// time: the answers are kept, but each invented token is another. The zero value is ready.
type refusals struct {
	mu  sync.Mutex
	all allowance
	of  map[string]*allowance
}

// allowance is refilled with time. The zero value is full.
type allowance struct {
	spent float64
	at    time.Time
}

// spentNow is what of it is spent.
func (a *allowance) spentNow(now time.Time, rate float64) float64 {
	a.spent = max(0, a.spent-now.Sub(a.at).Seconds()*rate)
	a.at = now
	return a.spent
}

// ask takes one question of an address (host:port), or is false when there were too many.
// Who took it for a token that is somebody's gives it back.
func (r *refusals) ask(address string) (giveBack func(), ok bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.host(inflight.HostOf(address), now)
	if one.spentNow(now, rateOfOne)+1 > burstOfOne || r.all.spentNow(now, rateOfAll)+1 > burstOfAll {
		return nil, false
	}
	one.spent++
	r.all.spent++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		one.spent = max(0, one.spent-1)
		r.all.spent = max(0, r.all.spent-1)
	}, true
}

// host is an address's allowance. The caller holds the lock.
func (r *refusals) host(name string, now time.Time) *allowance {
	if one := r.of[name]; one != nil {
		return one
	}
	if len(r.of) >= mostAddresses {
		for other, one := range r.of {
			if one.spentNow(now, rateOfOne) == 0 {
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

// errRefused is what a token gets that was nobody's a moment ago.
var errRefused = errors.New("invalid bearer token, as the apiserver said a moment ago")

const (
	// refusedFor is how long nobody asks again about a token that is nobody's. The
	// library keeps no such answer when the apiserver says why.
	refusedFor = 10 * time.Second
	// mostRefused bounds them.
	mostRefused = 1024
)

// refusedTokens remembers which tokens the apiserver said are nobody's, by their hashes.
// The zero value is ready.
type refusedTokens struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]time.Time // when it was said
}

func (r *refusedTokens) has(token string) bool {
	hash := sha256.Sum256([]byte(token))
	r.mu.Lock()
	defer r.mu.Unlock()
	said, ok := r.of[hash]
	return ok && time.Since(said) < refusedFor
}

// note takes any other out for the next when there are too many.
func (r *refusedTokens) note(token string) {
	hash := sha256.Sum256([]byte(token))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[[sha256.Size]byte]time.Time{}
	}
	for other := range r.of {
		if len(r.of) < mostRefused {
			break
		}
		delete(r.of, other)
	}
	r.of[hash] = time.Now()
}
