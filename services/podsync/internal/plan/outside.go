package plan

import "time"

// sandboxMayFollow is how long after a container's violent end its sandbox may
// go down, too.
const sandboxMayFollow = 2 * time.Second

// Exit codes of a process that a signal ended: 128 and the signal's number.
const (
	exitKilled     = 128 + 9
	exitTerminated = 128 + 15
)

// killedFromOutside says whether the container was ended by a signal that
// neither podsync nor the kernel's memory limit has sent.
func (p *planner) killedFromOutside(c *Container) bool {
	if c.State != StateExited || c.ExitCode != exitKilled && c.ExitCode != exitTerminated || c.Reason == "OOMKilled" {
		return false
	}
	_, ours := p.s.Stops[c.ID]
	return !ours
}

// afterSandbox is the earliest start of a container that was killed from
// outside while its sandbox still stands. Who takes a sandbox away ends its
// containers first: one that is started again at once starts in what is about
// to go, and counts two restarts for one loss. Zero when there is nothing to
// wait for, also as soon as the sandbox is seen to be down.
func (p *planner) afterSandbox(v *view) time.Time {
	c := v.last
	if c == nil || v.lost || p.sandbox == nil || c.SandboxID != p.sandbox.ID || !p.killedFromOutside(c) || p.stale(v, c) || p.ahead(c.FinishedAt) {
		return time.Time{}
	}
	return c.FinishedAt.Add(sandboxMayFollow)
}
