package limiter

import "time"

// better is by how much the rate has to grow for more slots to be worth it.
const better = 1.1

// retryAfter is how many windows pass before more slots are tried again.
const retryAfter = 16

// gauge measures how much work ends per time while there is more of it than
// slots: only then does the number of slots matter.
type gauge struct {
	began    time.Time
	finished int
	// before is the limit that was left for the present one, and its rate;
	// zero when none is on trial.
	before     int
	beforeRate float64
	hold       int
}

// adaptLocked is called when work has ended, in its slot or without one. It climbs:
// more slots for as long as they give a better rate, back by one step when they do
// not.
func (p *Limiter) adaptLocked() {
	g := &p.gauge
	if len(p.waiting) == 0 {
		g.began, g.finished = time.Time{}, 0
		return
	}
	now := time.Now()
	if g.began.IsZero() {
		g.began = now
		return
	}
	g.finished++
	elapsed := now.Sub(g.began).Seconds()
	if g.finished < 2*p.limit || elapsed <= 0 {
		return
	}
	rate := float64(g.finished) / elapsed
	g.began, g.finished = now, 0
	switch {
	case g.before != 0 && rate < better*g.beforeRate:
		p.limit, g.before, g.hold = g.before, 0, retryAfter
	case g.hold > 0:
		g.hold--
	case p.limit < p.cfg.Most:
		g.before, g.beforeRate = p.limit, rate
		p.limit = min(p.cfg.Most, p.limit+max(1, p.limit/2))
	default:
		g.before = 0
	}
}
