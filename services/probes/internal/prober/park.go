package prober

import (
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// parkFor is how long a probe that a snapshot did not name is remembered.
//
// A podsync that has just been started may send its first snapshot before it
// has looked at the whole runtime. A probe that comes back with the same
// container id goes on as it stood, so that podsync's restart flips nothing.
const parkFor = 5 * time.Minute

type parked struct {
	entry *entry
	since time.Time
}

// park takes a probe out of the set. Its result stays with the sink.
func (e *Engine) park(p *entry, now time.Time) {
	e.remove(p)
	e.parked[p.state.Target().Key] = parked{entry: p, since: now}
}

// unpark returns the parked probe of the same container id, or nil.
func (e *Engine) unpark(t probe.Target, now time.Time) *entry {
	old, ok := e.parked[t.Key]
	if !ok {
		return nil
	}
	outcome, _ := old.entry.state.Outcome()
	if old.entry.state.Target().ContainerID != t.ContainerID || outcome == probe.Unknown {
		e.unparkKey(t.Key)
		return nil
	}
	delete(e.parked, t.Key)
	// A copy: an attempt of the old one may still be ending.
	return &entry{
		state:       old.entry.state.Update(t, now),
		lastAttempt: old.entry.lastAttempt,
		lastOK:      old.entry.lastOK,
		message:     old.entry.message,
		index:       -1,
	}
}

// unparkOld forgets what did not come back.
func (e *Engine) unparkOld(now time.Time) {
	for k, p := range e.parked {
		if now.Sub(p.since) >= parkFor {
			e.unparkKey(k)
		}
	}
}

// unparkKey forgets one parked probe, if there is one.
func (e *Engine) unparkKey(k probe.Key) {
	if p, ok := e.parked[k]; ok {
		delete(e.parked, k)
		e.sink.Drop(k)
		e.meter.Forget(p.entry.state.Target())
	}
}
