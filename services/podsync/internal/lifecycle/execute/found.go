package execute

import (
	"slices"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// What an action finds when its turn comes may be other than what the planner saw: a
// call whose answer was lost has done its work, a sandbox has gone down meanwhile. What
// that makes of the action is said here, on plain data. It may come to nothing, and then
// the planner decides on what is there; it may never come to something else.

// inTheWay are the containers of a start's name that were made and never started, newer
// than what settles it: they go, whether it is made anew or not. settled says that there
// is nothing to start: something of the name lives after all, or this very start has come
// and gone.
func inTheWay(o podstate.Observed, a podstate.Action) (halfMade []string, settled bool) {
	for i := range o.Containers {
		c := &o.Containers[i]
		switch {
		case c.Name != a.Container:
		case c.Live(), c.Ended() && c.RestartCount == a.Attempt && c.SandboxID == a.SandboxID:
			return halfMade, true
		case c.Created():
			halfMade = append(halfMade, c.ID)
		}
	}
	return halfMade, false
}

// containerMade says whether a container of the start is there, whoever made it.
func containerMade(o podstate.Observed, a podstate.Action) bool {
	return slices.ContainsFunc(o.Containers, func(c podstate.Container) bool { return c.Name == a.Container && c.RestartCount == a.Attempt })
}

// sandboxMade says the same of a sandbox.
func sandboxMade(o podstate.Observed, a podstate.Action) bool {
	return slices.ContainsFunc(o.Sandboxes, func(s podstate.Sandbox) bool { return s.Attempt == uint32(a.Attempt) })
}

// attempt is what a start that the runtime did not carry out counts as.
type attempt int

const (
	// failed: it was one, and counts.
	failed attempt = iota
	// none: its sandbox went down meanwhile; what was made for it goes, so that it is
	// not counted.
	none
	// ran: it ran all the same, though the runtime's answer says otherwise; its end
	// counts like any other.
	ran
)

// counts says what a start that came to nothing counts as. looked: what was made is
// known; it is nil when nothing was.
func counts(sandboxDown, looked bool, made *podstate.Container) attempt {
	switch {
	case !sandboxDown || !looked:
		return failed
	case made.Ran():
		return ran
	}
	return none
}
