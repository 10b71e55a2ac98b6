package liveconf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// move makes a configuration the active one and has services take it.
func (c *Controller) move(ctx context.Context, next *kubeletconfig.Loaded, restart []string, phase Phase) {
	before := c.active
	c.generation++
	c.active = next
	if err := c.store.setActive(c.generation, next); err != nil {
		c.cfg.Log.Error(err, "The configuration that is to run could not be written down; a start of polylet run takes what the files say then")
	}
	again := configslice.RestartsOf(configslice.Difference(before.Fields(), next.Fields()))
	state := c.state
	state.Phase = phase
	if phase == Trying {
		state = State{Phase: Trying, Changes: c.trial.changes}
	}
	c.say(state)
	if err := c.node.Put(next, c.generation); err != nil {
		c.cfg.Log.Error(err, "The configuration could not be handed to all services", "generation", c.generation)
		if c.trial != nil {
			c.trial.failed = fmt.Errorf("hand it to the services: %w", err)
			return
		}
	}
	c.hear() // what ended before had the other configuration
	if c.trial != nil {
		c.trial.forget()
	}
	for _, service := range restart {
		if c.trial != nil {
			c.trial.restarted = append(c.trial.restarted, service)
		}
		if !slices.Contains(again, service) && c.change(ctx, service) {
			continue
		}
		if err := c.node.Restart(service); err != nil {
			c.cfg.Log.Error(err, "A service could not be started again", "process", service)
		}
		if !c.awaitUp(ctx, service) {
			return
		}
	}
}

// change has a service take the active configuration while it runs. False: it does not, and
// has to start again.
func (c *Controller) change(ctx context.Context, service string) bool {
	if c.absent[service] {
		return false
	}
	if err := c.node.Change(service); err != nil {
		c.cfg.Log.Error(err, "A service could not be handed what it takes while it runs", "process", service)
		return false
	}
	runs := c.awaitRuns(ctx, service, takesWithin, func() bool { return false })
	if !runs && ctx.Err() == nil {
		c.cfg.Log.Info("A service does not take its configuration while it runs, and starts again", "process", service)
	}
	return runs || ctx.Err() != nil // nobody is to start again when this one ends
}

// awaitUp waits until a service runs the active configuration. False: the trial is over,
// or ctx is done. One that is away for too long holds the others up no longer: whoever
// judges the trial sees that it is away.
func (c *Controller) awaitUp(ctx context.Context, service string) bool {
	over := false
	c.awaitRuns(ctx, service, comesUp, func() bool {
		_, bad := c.trial.verdict(time.Now())
		over = bad != nil
		return over
	})
	return !over && ctx.Err() == nil
}

// awaitRuns asks a service until it runs the active configuration, and says whether it
// does: not when the time or ctx is over before, or when over says so. A service tells
// nobody of what it has taken, so that it is asked.
func (c *Controller) awaitRuns(ctx context.Context, service string, within time.Duration, over func() bool) bool {
	want := configslice.Checksum(c.active.Fields(), service)
	timer := time.NewTimer(within)
	defer timer.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if report, err := c.askOne(ctx, service); err == nil && report.Checksum == want {
			return true
		}
		if over() {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-c.heard:
			c.hear()
		case <-tick.C:
		}
	}
}

// hear takes what has ended into the trial.
func (c *Controller) hear() {
	c.mu.Lock()
	ended := c.ended
	c.ended = nil
	c.mu.Unlock()
	for _, e := range ended {
		c.trial.end(e.service, e.err)
	}
}

// errEnded is the answer of a service when one ends while it is asked.
var errEnded = errors.New("a service ended meanwhile")

// askOne asks a service; its answer is not waited for when one ends meanwhile, for it
// may be the one that is asked, whose socket takes the question for the next process.
func (c *Controller) askOne(ctx context.Context, service string) (Report, error) {
	type answer struct {
		report Report
		err    error
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		report, err := c.node.Ask(ctx, service)
		answers <- answer{report, err}
	}()
	select {
	case a := <-answers:
		return a.report, a.err
	case <-ctx.Done():
		return Report{}, ctx.Err()
	case <-c.heard:
		c.hear()
		return Report{}, errEnded
	}
}

// reports are what services say of themselves now, of those that answer. Of those that run
// with another change, which is not known to be good, it is what they said before that.
// silent are those that do not answer and of which no process is known: that they do not
// afterwards says nothing.
func (c *Controller) reports(ctx context.Context, services []string) (out map[string]Report, silent []string) {
	out = map[string]Report{}
	if c.trial != nil {
		maps.Copy(out, c.trial.before)
		silent = slices.Clone(c.trial.silent)
	}
	for _, service := range services {
		if c.trial != nil && slices.Contains(c.trial.owners, service) {
			continue
		}
		if report, answers := c.awaitAnswer(ctx, service); answers {
			out[service] = report
		} else if _, runs := c.node.Processors(service); !runs {
			silent = append(silent, service)
		}
	}
	return out, silent
}

// awaitAnswer asks a service before a change until it answers. One that is just starting
// is waited for: of one that does not run at all no change is to blame for its silence, of
// one that starts it may be. False: it gives no answer; then it is not waited for again
// until it has given one.
func (c *Controller) awaitAnswer(ctx context.Context, service string) (Report, bool) {
	timer := time.NewTimer(comesUp)
	defer timer.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		report, err := c.askOne(ctx, service)
		if err == nil {
			delete(c.absent, service)
			return report, true
		}
		if c.absent[service] && !errors.Is(err, errEnded) {
			return Report{}, false
		}
		select {
		case <-ctx.Done():
			return Report{}, false
		case <-timer.C:
			c.absent[service] = true
			return Report{}, false
		case <-tick.C:
		}
	}
}

// ask looks at all owners. Of those whose credential is being waited for an apiserver that
// answers says nothing: a node that joins another cluster with a new configuration may wait
// for a person.
func (c *Controller) ask(ctx context.Context) {
	waits, joins := "", false
	for _, service := range c.trial.owners {
		report, err := c.askOne(ctx, service)
		if ctx.Err() != nil || errors.Is(err, errEnded) {
			return
		}
		want := configslice.Checksum(c.active.Fields(), service)
		bad, outside := c.trial.wrong(service, want, report, err)
		if bad != "" && !outside {
			c.lookAt(service, bad, err != nil || report.Checksum != want)
			return
		}
		waits, joins = cmp.Or(waits, bad), joins || report.Lacks[credential] != ""
	}
	if waits == "" || !joins && c.apiserverAnswers(ctx) {
		c.trial.look(time.Now(), waits)
		return
	}
	if c.trial.waits == "" {
		c.cfg.Log.Info("Nothing is said of the change until the apiserver answers again", "generation", c.generation, "reason", waits)
	}
	c.trial.wait(time.Now(), waits)
}

// apiserverAnswers says whether the apiserver is there, whatever the services say of it.
func (c *Controller) apiserverAnswers(ctx context.Context) bool {
	if c.cfg.Answers == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return c.cfg.Answers(ctx) == nil
}
