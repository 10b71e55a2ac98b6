package plan

import (
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	// sandboxMayFollow is how long after the violent ends of containers their
	// sandbox may go down, too.
	sandboxMayFollow = 2 * time.Second
	// nextFollows is how soon after the last of them the process of a sandbox
	// that is taken away is dead, as a rule; what is left of the way to a new
	// container is as much again.
	nextFollows = 40 * time.Millisecond
)

// Exit codes of a process that a signal ended: 128 and the signal's number.
const (
	exitKilled     = 128 + 9
	exitTerminated = 128 + 15
)

// killedFromOutside says whether the container was ended by a signal that
// neither podsync nor the kernel's memory limit has sent.
func (p *planner) killedFromOutside(c *podstate.Container) bool {
	if c.State != podstate.StateExited || c.ExitCode != exitKilled && c.ExitCode != exitTerminated || c.Reason == "OOMKilled" {
		return false
	}
	_, ours := p.stopCause(c)
	return !ours
}

// afterSandbox is the earliest start of a container that was killed from
// outside while its sandbox still stands. Who takes a sandbox away ends its
// containers first, one after the other, and then the sandbox: one that is
// started again at once starts in what is about to go, and counts two restarts
// for one loss. After the only container the sandbox's own process is the next
// to end, and by the time a container is made anew it tells (see
// Action.SandboxUntil). Of several nothing tells which is the next and when.
// Zero when there is nothing to wait for, also as soon as the sandbox is seen
// to be down.
func (p *planner) afterSandbox(v *view) time.Time {
	if !p.killedInPlace(v) {
		return time.Time{}
	}
	last, alone := v.newest().FinishedAt, true
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		switch {
		case c.SandboxID != v.newest().SandboxID || c.Name == v.newest().Name:
		case c.Live():
			alone = false
		case p.killedFromOutside(c) && c.FinishedAt.Sub(v.newest().FinishedAt).Abs() < sandboxMayFollow:
			alone = false
			if c.FinishedAt.After(last) {
				last = c.FinishedAt
			}
		}
	}
	if alone {
		return last.Add(nextFollows)
	}
	return last.Add(sandboxMayFollow)
}

// sandboxUntil is Action.SandboxUntil of a start of the container.
func (p *planner) sandboxUntil(v *view) time.Time {
	if !p.killedInPlace(v) {
		return time.Time{}
	}
	return v.newest().FinishedAt.Add(sandboxMayFollow)
}

// killedInPlace says whether the container is to start again in the sandbox in
// which it was killed from outside.
func (p *planner) killedInPlace(v *view) bool {
	c := v.newest()
	return c != nil && !v.remembered() && p.sandbox != nil && c.SandboxID == p.sandbox.ID && p.killedFromOutside(c) && !v.stale(c) &&
		!p.ahead(c.FinishedAt)
}
