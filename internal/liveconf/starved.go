package liveconf

import (
	"time"

	"github.com/polylet/polylet/internal/schedstat"
)

// longestStarved is how much of a trial may pass without a verdict since services have no
// processor: one that goes round in a ring has or waits for processors, too.
const longestStarved = 10 * time.Minute

// measured is what a service had had of processors at a time.
type measured struct {
	at    time.Time
	times schedstat.Times
}

// starved tells a service that has had no chance yet to run a change well from one that the
// change keeps from it: on a machine with twenty times as much to do as it can a start takes
// minutes, and going back would be one start more. It is so of a service that was ready to
// run and had no processor for half of the time since it was measured last; and of one that
// does not answer, or still runs what was before, also while it runs itself, as who starts
// on a slow machine does.
func (t *trial) starved(now time.Time, service string, times schedstat.Times, comesUp bool) bool {
	before, known := t.processors[service]
	t.processors[service] = measured{now, times}
	if !known || t.starvedFor >= longestStarved {
		return false
	}
	since := times.Since(before.times)
	busy := since.Waited
	if comesUp {
		busy += since.Ran
	}
	return busy >= now.Sub(before.at)/2
}

// lookAt notes what is wrong with a service, unless it is that it has no processor.
func (c *Controller) lookAt(service, bad string, comesUp bool) {
	now, t := time.Now(), c.trial
	times, known := c.node.Processors(service)
	if !known || !t.starved(now, service, times, comesUp) {
		t.look(now, bad)
		return
	}
	if t.starvedFor == 0 {
		c.cfg.Log.Info("Nothing is said of the change while a service has no processor, or needs one to start, for ten minutes at most",
			"generation", c.generation, "process", service, "reason", bad)
	}
	t.starvedFor += now.Sub(t.seen)
	t.wait(now, bad)
}
