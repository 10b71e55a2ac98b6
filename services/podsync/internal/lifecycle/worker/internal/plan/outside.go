package plan

import (
	"slices"
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

// reasonOOMKilled is the runtime's of a container of which the kernel has ended a process
// for its memory.
const reasonOOMKilled = "OOMKilled"

// Exit codes of a process that a signal ended: 128 and the signal's number.
const (
	exitKilled     = 128 + 9
	exitTerminated = 128 + 15
)

// killedFromOutside says whether the container was ended by a signal that
// neither podsync nor the kernel's memory limit has sent.
func (p *planner) killedFromOutside(c *podstate.Container) bool {
	if c.State != podstate.StateExited || c.ExitCode != exitKilled && c.ExitCode != exitTerminated || c.Reason == reasonOOMKilled {
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
	last := v.newest().FinishedAt
	around := p.others(v)
	if around.killed.IsZero() && !around.live {
		return last.Add(nextFollows)
	}
	if around.killed.After(last) {
		last = around.killed
	}
	return last.Add(sandboxMayFollow)
}

// inSandbox are the containers of the usable sandbox.
type inSandbox struct {
	known bool
	// live are the names of two of them that are live, or of one.
	live []string
	// killed are those that were killed from outside, in the order of their ends.
	killed []*podstate.Container
}

func (p *planner) inSandbox() *inSandbox {
	in := &p.inUse
	if in.known {
		return in
	}
	in.known = true
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		switch {
		case c.SandboxID != p.sandbox.ID:
		case c.Live():
			if len(in.live) == 0 || len(in.live) == 1 && in.live[0] != c.Name {
				in.live = append(in.live, c.Name)
			}
		case p.killedFromOutside(c):
			in.killed = append(in.killed, c)
		}
	}
	slices.SortFunc(in.killed, func(a, b *podstate.Container) int { return a.FinishedAt.Compare(b.FinishedAt) })
	return in
}

// others are the containers beside one that was killed in place: whether one of them is
// live, and when the last was killed that was killed about when it was; zero when none was.
type others struct {
	live   bool
	killed time.Time
}

func (p *planner) others(v *view) (out others) {
	in, mine := p.inSandbox(), v.newest()
	out.live = slices.ContainsFunc(in.live, func(name string) bool { return name != mine.Name })
	behind, _ := slices.BinarySearchFunc(in.killed, mine.FinishedAt.Add(sandboxMayFollow), func(c *podstate.Container, t time.Time) int { return c.FinishedAt.Compare(t) })
	for i := behind - 1; i >= 0 && mine.FinishedAt.Sub(in.killed[i].FinishedAt) < sandboxMayFollow; i-- {
		if in.killed[i].Name != mine.Name {
			out.killed = in.killed[i].FinishedAt
			break
		}
	}
	return out
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
