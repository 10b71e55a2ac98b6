package sampler

import (
	"sync"
	"time"
)

// minWindow is the shortest time over which a rate is worth something.
const minWindow = 5 * time.Second

// rates turns CPU counters into CPU usage. Safe for concurrent use.
type rates struct {
	mu     sync.Mutex
	byName map[string]*rate
}

type rate struct {
	at    time.Time
	total uint64
	nano  uint64
	valid bool
	seen  time.Time
}

// observe takes a counter in and returns the usage over the last window, nil
// before there is one. A window is not shorter than minWindow, save the first.
func (r *rates) observe(name string, at time.Time, total uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]*rate{}
	}
	x := r.byName[name]
	if x == nil || total < x.total {
		// New, or another cgroup under the same name.
		r.byName[name] = &rate{at: at, total: total, seen: at}
		return nil
	}
	x.seen = at
	window := at.Sub(x.at)
	if window >= minWindow || !x.valid && window >= time.Second {
		x.nano = uint64(float64(total-x.total) / window.Seconds())
		x.valid = true
		if window >= minWindow {
			x.at, x.total = at, total
		}
	}
	if !x.valid {
		return nil
	}
	nano := x.nano
	return &nano
}

// forget drops what was not seen since a time.
func (r *rates) forget(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, x := range r.byName {
		if x.seen.Before(before) {
			delete(r.byName, name)
		}
	}
}
