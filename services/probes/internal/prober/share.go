package prober

import (
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// mostOfOne is how many attempts of one namespace's probes are in flight at once. A
// spec may let one take a day: without a bound those of one namespace take all calls
// that podsync lets this process make, and its memory.
const mostOfOne = 256

// shares count the attempts in flight by namespace, and hold the probes that are due
// and wait for one of them to end, the first first.
type shares struct {
	busy    map[string]int
	waiting map[string][]*entry
}

func newShares() shares { return shares{busy: map[string]int{}, waiting: map[string][]*entry{}} }

// full puts a probe that is due and in no queue off when its namespace has its share
// in flight.
func (s *shares) full(p *entry, t probe.Target) bool {
	if s.busy[t.Namespace] < mostOfOne {
		return false
	}
	if !p.waits {
		p.waits = true
		s.waiting[t.Namespace] = append(s.waiting[t.Namespace], p)
	}
	return true
}

// begin counts an attempt.
func (s *shares) begin(t probe.Target) { s.busy[t.Namespace]++ }

// end counts an attempt less.
func (s *shares) end(t probe.Target) {
	if s.busy[t.Namespace]--; s.busy[t.Namespace] == 0 {
		delete(s.busy, t.Namespace)
	}
}

// next takes out the probe of a namespace that has waited longest; nil when none does.
func (s *shares) next(namespace string) *entry {
	list := s.waiting[namespace]
	for len(list) > 0 {
		p := list[0]
		list = list[1:]
		s.waiting[namespace] = list
		p.waits = false
		if !p.gone && p.index < 0 && p.cancel == nil {
			return p
		}
	}
	delete(s.waiting, namespace)
	return nil
}

// ended counts an attempt less, and gives its place to another.
func (e *Engine) ended(t probe.Target, now time.Time) {
	e.shares.end(t)
	e.fill(t.Namespace, now)
}

// fill gives a place of a namespace that is free to a probe that waits for one and is
// still due. That one may lose it again before its attempt begins: whatever takes it
// away calls this.
func (e *Engine) fill(namespace string, now time.Time) {
	if e.shares.busy[namespace] >= mostOfOne {
		return
	}
	for p := e.shares.next(namespace); p != nil; p = e.shares.next(namespace) {
		e.arm(p)
		if p.index >= 0 && !p.due.After(now) {
			return
		}
	}
}
