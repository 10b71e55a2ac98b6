package prober

import (
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// How many attempts are in flight at once: of a namespace's probes mostOfOne, as long as
// there are fewer than most in all, and kept whatever others have. A spec may let one take
// a day, and what it asks may send much: without bounds those of one namespace take all
// calls that podsync lets this process make, and those of a few its memory.
const (
	mostOfOne = 256
	most      = 320
	kept      = 16
)

// shares count the attempts in flight by namespace, and hold the probes that are due
// and wait for one of them to end, the first first.
type shares struct {
	all     int
	busy    map[string]int
	waiting map[string][]*entry
}

func newShares() shares { return shares{busy: map[string]int{}, waiting: map[string][]*entry{}} }

// may says whether an attempt of a namespace may begin.
func (s *shares) may(namespace string) bool {
	n := s.busy[namespace]
	return n < kept || n < mostOfOne && s.all < most
}

// full puts a probe that is due and in no queue off when its namespace has its share
// in flight.
func (s *shares) full(p *entry, t probe.Target) bool {
	if s.may(t.Namespace) {
		return false
	}
	if !p.waits {
		p.waits = true
		s.waiting[t.Namespace] = append(s.waiting[t.Namespace], p)
	}
	return true
}

// begin counts an attempt.
func (s *shares) begin(t probe.Target) {
	s.all++
	s.busy[t.Namespace]++
}

// end counts an attempt less.
func (s *shares) end(t probe.Target) {
	s.all--
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

// fill gives a place that is free to a probe that waits for one and is still due: of this
// namespace, else of the one that has fewest in flight. That one may lose it again before
// its attempt begins: whatever takes it away calls this.
func (e *Engine) fill(namespace string, now time.Time) {
	for !e.fillOf(namespace, now) {
		var other bool
		if namespace, other = e.shares.poorest(); !other {
			return
		}
	}
}

// poorest is the namespace with fewest attempts in flight of those whose probes wait and
// may begin, the first by name of several.
func (s *shares) poorest() (namespace string, any bool) {
	for candidate := range s.waiting {
		if !s.may(candidate) {
			continue
		}
		if !any || s.busy[candidate] < s.busy[namespace] || s.busy[candidate] == s.busy[namespace] && candidate < namespace {
			namespace, any = candidate, true
		}
	}
	return namespace, any
}

// fillOf says whether a probe of a namespace took a place.
func (e *Engine) fillOf(namespace string, now time.Time) bool {
	if !e.shares.may(namespace) {
		return false
	}
	for p := e.shares.next(namespace); p != nil; p = e.shares.next(namespace) {
		e.arm(p)
		if p.index >= 0 && !p.due.After(now) {
			return true
		}
	}
	return false
}
