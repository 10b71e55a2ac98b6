package liveconf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/polylet/polylet/internal/configslice"
)

// goBack returns to the last known good configuration, and keeps the bad one.
func (c *Controller) goBack(ctx context.Context, why error) {
	trial, bad := c.trial, c.active
	c.trial = nil
	good := c.store.lastKnownGood(c.cfg.Args)
	text := fmt.Sprintf("%s: %v", strings.Join(configslice.Texts(trial.changes), ", "), why)
	if good == nil && len(trial.changes) == 0 {
		// The first one of all, which nobody has changed. It may do well later.
		c.trial = newTrial(c.cfg.Deadline, nil, trial.owners, nil)
		return
	}
	if good == nil {
		c.cfg.Log.Error(why, "The configuration does not run well, and no last known good one is there to go back to", "generation", c.generation)
		c.say(State{Phase: Bad, Error: text, Changes: trial.changes})
		return
	}
	file, err := c.store.setBad(c.generation, bad, text)
	if err != nil {
		c.cfg.Log.Error(err, "The bad configuration could not be written down; a start of polylet run tries it again")
	}
	c.cfg.Log.Error(why, "The configuration is bad; going back to the last known good one", "generation", c.generation, "changes", configslice.Texts(trial.changes), "file", file)
	c.refused = text
	c.state = State{Phase: WentBack, Error: text, Changes: trial.changes, File: file}
	changes := configslice.Difference(bad.Fields(), good.Fields())
	if refusal := configslice.Refusal(changes); refusal != nil {
		c.cannotReturn(refusal, err == nil)
		return
	}
	again := configslice.RestartsOf(changes)
	// One that takes it while it runs may have done so before its turn.
	reached := func(s string) bool { return slices.Contains(trial.restarted, s) || !slices.Contains(again, s) }
	restart := slices.DeleteFunc(c.running(configslice.OwnersOf(changes)), func(s string) bool { return !reached(s) })
	if c.wasOvers(bad, good, text, file) {
		c.state.Of = c.cfg.Over.LeftOut().Of
	}
	c.move(ctx, good, restart, WentBack)
}

// cannotReturn is for a way back that a running node cannot go, since a start took what
// it cannot change. The next start takes it, if it finds written down what was bad.
func (c *Controller) cannotReturn(why error, written bool) {
	state := c.state
	if !written {
		state.Phase = Bad
	}
	c.cfg.Log.Error(why, "The last known good configuration cannot be taken while the node runs", "generation", c.generation, "startsAgain", written)
	c.say(state)
	c.startAgain = written
}

// takeBack is a person's wish: to the last known good one during a trial, else to the
// one before it.
func (c *Controller) takeBack(ctx context.Context) {
	byHand := errors.New("taken back by polylet config rollback")
	if c.trial != nil {
		c.goBack(ctx, byHand)
		return
	}
	before := c.store.previous(c.cfg.Args)
	if before == nil || sumOf(before) == sumOf(c.active) {
		c.cfg.Log.Info("There is no other configuration that was good before; the one that runs goes on", "generation", c.generation)
		return
	}
	changes := configslice.Difference(before.Fields(), c.active.Fields())
	if err := configslice.Refusal(changes); err != nil {
		c.cfg.Log.Error(err, "The configuration before cannot be taken while the node runs")
		return
	}
	if err := c.store.setGood(c.generation+1, before); err != nil {
		c.cfg.Log.Error(err, "The configuration before could not be written down as the good one; the one that runs goes on")
		return
	}
	c.trial = newTrial(c.cfg.Deadline, changes, nil, nil)
	c.trial.restarted = c.running(configslice.OwnersOf(changes))
	c.goBack(ctx, byHand)
}
