package assigned

import (
	"context"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/backoff"
)

// Against the deadline of a trial: how long a change waits that follows another one at
// once, at least and at most, and how long there must be none until that begins anew.
const (
	firstPace   = 1. / 6
	longestPace = 10
	quietPace   = 20
)

// pace says when the next of the cluster's changes is taken in: each restarts services, and
// whoever writes a ConfigMap could otherwise have podsync end as fast as they write. The
// first one is taken at once.
type pace struct {
	first time.Duration
	grows *backoff.Backoff
	due   time.Time
}

func newPace(deadline time.Duration) *pace {
	first := time.Duration(float64(deadline) * firstPace)
	return &pace{first: first, grows: backoff.New(backoff.Config{Initial: first, Max: longestPace * deadline, ResetAfter: quietPace * deadline})}
}

// took notes that something was taken in. other: it says something else than what was there
// before; else it is another version of the same, and has no effect.
func (p *pace) took(now time.Time, other bool) {
	if !other {
		if soon := now.Add(p.first); soon.After(p.due) {
			p.due = soon
		}
		return
	}
	p.due = now.Add(p.grows.Next())
}

// forget has the next one be taken in at once.
func (p *pace) forget() {
	p.grows.Reset()
	p.due = time.Time{}
}

func (p *pace) String() string {
	return fmt.Sprintf("what the cluster assigns changes too often: what it says by then is looked at at %s, or at once by polylet config retry",
		p.due.UTC().Format(time.RFC3339))
}

// Offer says what the cluster says by now; nil: nothing is assigned. Only the newest is
// taken in (TakeIn).
func (s *Source) Offer(d *Document) {
	s.mu.Lock()
	s.offered, s.offers = d, true
	s.mu.Unlock()
	s.heard.Set()
}

// TakeIn takes in what is offered until ctx is done, and calls taken for what is something
// else than before. One that follows another soon waits, ever longer while changes keep
// coming, and is said to (View); the newest is taken in then.
func (s *Source) TakeIn(ctx context.Context, taken func()) {
	p := newPace(s.cfg.Deadline)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.heard:
		}
		if wait := time.Until(p.due); wait > 0 && s.hasToWait() {
			s.awaitPace(ctx, p, wait)
		}
		if ctx.Err() != nil {
			return
		}
		if changed, other := s.takeOffered(); changed {
			p.took(time.Now(), other)
			taken()
		}
	}
}

// awaitPace waits, until nothing is assigned any more or a person does not want to.
func (s *Source) awaitPace(ctx context.Context, p *pace, wait time.Duration) {
	select {
	case <-s.urgent: // it was about something before
	default:
	}
	s.setWaits(p.String())
	defer s.setWaits("")
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for !s.takesAway() { // that it is as before in between is not told each time
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-s.urgent:
			p.forget()
			return
		case <-s.heard:
		}
	}
}

func (s *Source) setWaits(text string) {
	s.mu.Lock()
	s.waits = text
	s.mu.Unlock()
	s.changed()
}

// hasToWait says whether what is offered is something else than what is assigned, and not
// that nothing is: who takes a ConfigMap away that somebody writes again and again need not
// wait for that. What is assigned next does.
func (s *Source) hasToWait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers && s.offered != nil && !same(s.offered, s.assigned)
}

// takeOffered makes what is offered what is assigned. changed: that is something else than
// before; other: its text is.
func (s *Source) takeOffered() (changed, other bool) {
	s.mu.Lock()
	d, offers, before := s.offered, s.offers, s.assigned
	s.offered, s.offers = nil, false
	s.mu.Unlock()
	if !offers {
		return false, false
	}
	return s.assign(d), d.over().Sum() != before.over().Sum()
}

// takesAway says whether what is assigned is to be no more.
func (s *Source) takesAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers && s.offered == nil && s.assigned != nil
}

func same(a, b *Document) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
