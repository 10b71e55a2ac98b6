package access

import (
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/inflight"
)

const (
	// familiarFor is how long an address counts as one from which somebody was let in.
	familiarFor = time.Hour
	// mostFamiliar bounds them. Few ask a node: apiservers, and what scrapes it.
	mostFamiliar = 1024
)

// Familiar remembers the addresses from which somebody was let in who is known: a token
// from there that is not known is likely to be a new one of the same. It lets nobody in.
// The zero value is ready, and safe for concurrent use; nil remembers nothing.
type Familiar struct {
	mu sync.Mutex
	of map[string]time.Time // when somebody was let in last
}

// has says whether somebody was let in from address (host:port).
func (f *Familiar) has(address string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.of[inflight.HostOf(address)]
	return ok && time.Since(at) < familiarFor
}

// note takes the one of longest ago out for the next when there are too many.
func (f *Familiar) note(address string) {
	if f == nil {
		return
	}
	name := inflight.HostOf(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]time.Time{}
	}
	if _, has := f.of[name]; !has && len(f.of) >= mostFamiliar {
		oldest, at := "", time.Now()
		for other, when := range f.of {
			if !when.After(at) {
				oldest, at = other, when
			}
		}
		delete(f.of, oldest)
	}
	f.of[name] = time.Now()
}
