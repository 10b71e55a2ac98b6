package cri

import (
	"sync"
	"time"
)

// lookTimeout is how long looks of each kind are waited for. An overloaded runtime
// answers late but does answer; whoever always gave up before it does would never
// see anything, and ask it ever more. So each look that was waited for in vain
// lets the next ones be waited for twice as long, up to most; answers that come
// early bring that back to least. Safe for concurrent use.
type lookTimeout struct {
	least time.Duration

	mu  sync.Mutex
	now map[string]time.Duration // by operation; least when absent
}

// of is how long to wait for the next look of this kind.
func (p *lookTimeout) of(op string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.least, p.now[op])
}

// ended takes in how a look ended that was waited for as long as asked said:
// how long it took, and whether it was given up. Many that are given up at once
// count once.
func (p *lookTimeout) ended(op string, asked, took time.Duration, givenUp bool, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := max(p.least, p.now[op])
	switch {
	case givenUp && asked >= now:
		now = min(2*now, max(most, p.least))
	case !givenUp && took < now/4:
		now -= now / 8
	default:
		return
	}
	if now <= p.least {
		delete(p.now, op)
		return
	}
	if p.now == nil {
		p.now = map[string]time.Duration{}
	}
	p.now[op] = now
}
