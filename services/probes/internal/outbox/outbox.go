// Package outbox keeps what podsync must learn until it has been sent: per
// probe the newest result, and a bounded queue of events. It owns no
// connection; it must never block who writes.
package outbox

import (
	"context"
	"sync"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

// maxEvents bounds the queue; the oldest go first. Events are best effort, as
// Kubernetes' own are.
const maxEvents = 256

// Outbox is safe for concurrent use. The zero value is not usable; see New.
type Outbox struct {
	mu     sync.Mutex
	held   map[probe.Key]probe.Result
	dirty  map[probe.Key]struct{}
	events []probe.Event
	notify wake.Signal
}

// New returns an empty Outbox.
func New() *Outbox {
	return &Outbox{
		held:   map[probe.Key]probe.Result{},
		dirty:  map[probe.Key]struct{}{},
		notify: wake.New(),
	}
}

// Hold takes a result; it replaces the one of the same probe. With send it goes
// out with the next Take, without only after Reset (podsync has it already).
func (o *Outbox) Hold(r probe.Result, send bool) {
	o.mu.Lock()
	o.held[r.Key] = r
	if send {
		o.dirty[r.Key] = struct{}{}
	}
	o.mu.Unlock()
	if send {
		o.wake()
	}
}

// Drop forgets the result of a probe that is gone.
func (o *Outbox) Drop(k probe.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, k)
	delete(o.dirty, k)
}

// Event queues one event.
func (o *Outbox) Event(e probe.Event) {
	o.mu.Lock()
	if len(o.events) == maxEvents {
		copy(o.events, o.events[1:])
		o.events = o.events[:maxEvents-1]
	}
	o.events = append(o.events, e)
	o.mu.Unlock()
	o.wake()
}

// Reset begins a new connection: it returns everything that is held and the
// events that wait, and nothing of it is due any more.
func (o *Outbox) Reset() ([]probe.Result, []probe.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	results := make([]probe.Result, 0, len(o.held))
	for _, r := range o.held {
		results = append(results, r)
	}
	clear(o.dirty)
	return results, o.takeEvents()
}

// Take waits until something is due and returns it; the error is ctx's.
func (o *Outbox) Take(ctx context.Context) ([]probe.Result, []probe.Event, error) {
	for {
		o.mu.Lock()
		if len(o.dirty)+len(o.events) > 0 {
			results := make([]probe.Result, 0, len(o.dirty))
			for k := range o.dirty {
				results = append(results, o.held[k])
			}
			clear(o.dirty)
			events := o.takeEvents()
			o.mu.Unlock()
			return results, events, nil
		}
		o.mu.Unlock()
		select {
		case <-o.notify:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (o *Outbox) takeEvents() []probe.Event {
	events := o.events
	o.events = nil
	return events
}

func (o *Outbox) wake() {
	o.notify.Set()
}
