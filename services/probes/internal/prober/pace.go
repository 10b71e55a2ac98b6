package prober

import "time"

// Attempts begin at least so far apart, but for a few that may begin together: a
// lone container is probed at once, and five hundred that turn up in the same
// moment, as on the first start on a busy node, are not probed in that moment.
const (
	apart    = time.Millisecond
	together = 8
)

// pace spreads the starts of attempts. The zero value is ready.
type pace struct {
	// next is when the next start would be due if none could begin together.
	next time.Time
}

// take returns how long to wait before the next start; zero when it may begin
// now, which counts it. Twice as many as there are probes may always begin in a
// second, for none is probed more often than that.
func (p *pace) take(now time.Time, probes int) time.Duration {
	gap := min(apart, time.Second/time.Duration(2*max(probes, 1)))
	if p.next.Before(now) {
		p.next = now
	}
	if wait := p.next.Sub(now) - (together-1)*gap; wait > 0 {
		return wait
	}
	p.next = p.next.Add(gap)
	return 0
}
