package rpc

import (
	"sync"
	"time"

	"github.com/polylet/polylet/internal/uds"
)

const (
	// quietFor is how long nothing more is logged of calls that are refused alike.
	quietFor = time.Minute
	// mostRefused bounds how many kinds of them are told apart; the rest is one.
	mostRefused = 256
)

// refused are calls that are refused alike.
type refused struct {
	uid    uint32
	pod    bool
	method string
}

// refusals lets a refused call into the log once a minute: whoever can open the
// socket can call as often as he likes. The zero value is ready.
type refusals struct {
	mu    sync.Mutex
	since time.Time
	count map[refused]int
}

// next says whether a refusal is to be logged, and how many were not since the
// last one that was.
func (r *refusals) next(caller uds.Peer, method string, now time.Time) (speak bool, unsaid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil || now.Sub(r.since) >= quietFor {
		for _, n := range r.count {
			unsaid += n - 1
		}
		r.since, r.count = now, map[refused]int{}
	}
	key := refused{caller.UID, caller.Pod != "", method}
	if _, known := r.count[key]; !known && len(r.count) >= mostRefused {
		key = refused{}
	}
	r.count[key]++
	return r.count[key] == 1, unsaid
}
