package liveconf

import "github.com/polylet/polylet/internal/kubeletconfig"

// Over is a source over the files, whose document Config.Load lays over them unless it
// knows better: one that cannot be used, or was bad, is left out by itself, so that
// whoever writes it cannot keep the files from being used. It hears what has become of
// what Load gave. Calls come from one goroutine; each may come again.
type Over interface {
	// LeftOut is why what it says now is not in what Load gave last, or since Bad will not be
	// in what it gives next, as a Phase (Refused or WentBack) with Of, Error and File; no
	// Phase: it is in it.
	LeftOut() State
	// Good says that a configuration is the last known good one. True: Load gives something
	// else from now on.
	Good(loaded *kubeletconfig.Loaded) bool
	// Bad says that a configuration was bad, why, and where it is kept, and which one runs
	// instead. True: Load leaves something out from now on.
	Bad(bad, instead *kubeletconfig.Loaded, why, file string) bool
	// Retry has it forget what was bad.
	Retry()
}

// isGood tells of the last known good configuration.
func (c *Controller) isGood(loaded *kubeletconfig.Loaded) {
	if c.cfg.Over != nil && c.cfg.Over.Good(loaded) {
		c.Changed()
	}
}

// wasOvers says whether it is not the files that were bad, but what lay over them: then
// they are looked at once more, without it.
func (c *Controller) wasOvers(bad, instead *kubeletconfig.Loaded, why, file string) bool {
	if c.cfg.Over == nil || instead == nil || !c.cfg.Over.Bad(bad, instead, why, file) {
		return false
	}
	c.Changed()
	return true
}

// settled says how it stands when what is said runs, and no trial is under way.
func (c *Controller) settled(said *kubeletconfig.Loaded) {
	var left State
	if c.cfg.Over != nil {
		left = c.cfg.Over.LeftOut()
	}
	switch {
	case left.Phase != "" && (left.Phase != c.state.Phase || left.Of != c.state.Of || left.Error != c.state.Error):
		c.cfg.Log.Info("What lies over the files is left out", "generation", c.generation, "reason", left.Error, "file", left.File)
		c.say(left)
	case left.Phase != "":
	case c.state.Phase == Good:
		c.isGood(said) // it may have other documents that say the same
	case c.state.Phase != Bad:
		c.say(State{Phase: Good})
		c.isGood(said)
	}
}
