package liveconf

import (
	"errors"
	"fmt"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

// Start chooses the configuration to start the node with, and returns it with its
// generation: what the files say; or the last known good one, when that cannot be used
// or was bad before. sources is what they say, or err why they cannot be used. Without
// a last known good one, or where this machine cannot use that either, that is returned.
func (c *Controller) Start(sources *kubeletconfig.Loaded, err error) (*kubeletconfig.Loaded, uint64, error) {
	if mkErr := c.store.ready(); mkErr != nil {
		c.cfg.Log.Error(mkErr, "The last known good configuration cannot be kept", "directory", c.cfg.Dir)
	}
	c.store.clean()
	good := c.store.lastKnownGood(c.cfg.Args)
	defer c.tellDamage()
	if c.cfg.Running && c.goOn(good) {
		return c.active, c.generation, nil
	}
	if err == nil && c.cfg.Check != nil {
		err = c.cfg.Check(sources)
	}
	if err != nil && good != nil && c.cfg.Check != nil {
		if cannot := c.cfg.Check(good); cannot != nil {
			return nil, 0, fmt.Errorf("%w; nor can this machine use the last known good configuration: %w", err, cannot)
		}
	}
	switch {
	case err != nil && good == nil:
		return nil, 0, err
	case err != nil:
		c.useGood(good, Refused, err, c.cfg.Dir)
	case good == nil:
		c.begin(sources)
		c.trial = newTrial(c.cfg.Deadline, nil, c.running(service.ServersFirst()), nil)
		c.state = c.named(State{Phase: Good})
	case sumOf(good) == sumOf(sources):
		c.begin(sources)
		c.state = c.named(State{Phase: Good})
	default:
		if why := c.store.bad(sources); why != "" {
			c.useGood(good, WentBack, errors.New(why), c.store.badFile(sumOf(sources)))
			break
		}
		c.begin(sources)
		changes := configslice.Difference(good.Fields(), sources.Fields())
		owners := c.running(configslice.OwnersOf(changes))
		c.trial = newTrial(c.cfg.Deadline, changes, owners, nil)
		c.trial.restarted = owners
		c.cfg.Log.Info("The configuration is another than the last known good one, which comes back if the services do not run this one well",
			"generation", c.generation, "changes", configslice.Texts(changes))
		c.state = c.named(State{Phase: Trying, Changes: changes})
	}
	return c.active, c.generation, nil
}

// goOn takes up the configuration that the services run with; false when it is not known.
// Its trial begins anew.
func (c *Controller) goOn(good *kubeletconfig.Loaded) bool {
	active := c.store.load(activeFile, c.cfg.Args)
	if active == nil {
		return false
	}
	if why := c.store.bad(active); why != "" {
		if good == nil {
			return false
		}
		c.useGood(good, WentBack, errors.New(why), c.store.badFile(sumOf(active)))
		return true
	}
	c.begin(active)
	c.state = c.named(State{Phase: Good})
	if good != nil && sumOf(good) == sumOf(active) {
		return true
	}
	var changes []configslice.Change
	owners := c.running(service.ServersFirst())
	if good != nil {
		changes = configslice.Difference(good.Fields(), active.Fields())
		owners = c.running(configslice.OwnersOf(changes))
		c.state = c.named(State{Phase: Trying, Changes: changes})
	}
	c.trial = newTrial(c.cfg.Deadline, changes, owners, nil)
	c.trial.restarted = owners
	return true
}

// useGood starts with the last known good configuration, and says so loudly.
func (c *Controller) useGood(good *kubeletconfig.Loaded, phase Phase, err error, file string) {
	c.begin(good)
	c.state = c.named(State{Phase: phase, Error: err.Error(), File: file})
	c.refused = err.Error()
	c.cfg.Log.Error(err, "THE CONFIGURATION CANNOT BE USED: the node starts with the last known good one", "generation", c.generation, "file", file)
}

// begin makes a configuration the active one; its generation is a new one unless it was
// the active one before.
func (c *Controller) begin(loaded *kubeletconfig.Loaded) {
	generation, sum := c.store.lastActive()
	if sum != sumOf(loaded) || generation == 0 {
		generation++
	}
	c.generation, c.active = generation, loaded
	if err := c.store.setActive(generation, loaded); err != nil {
		c.cfg.Log.Error(fmt.Errorf("write down the configuration that runs: %w", err), "The count of configurations begins anew at the next start")
	}
}

func (c *Controller) named(s State) State {
	s.Generation, s.Checksum = c.generation, sumOf(c.active)
	return s
}
