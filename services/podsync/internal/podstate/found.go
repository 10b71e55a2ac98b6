package podstate

import (
	"slices"
	"time"
)

// What an action finds when its turn comes may be other than what the planner saw: a call
// whose answer was lost has done its work, a sandbox has gone down meanwhile. What that
// makes of the action are rules as the planner's own, pure and on plain data, but they
// have an answer in the middle of the action alone, where the planner cannot be asked. So
// they go with the action: the planner writes into it what they depend on, and who carries
// it out tells them what it found. They may let an action come to nothing, and then the
// planner decides on what is there; they may never make another action of it.

// Finds says what is in the way of a StartContainer: halfMade are the containers of its
// name that were made and never started, newer than what settles it, which go whether it
// is made anew or not, but for those that it is to start Beside. settled: there is nothing to start, for something of the name lives
// after all, or this very start has come and gone.
func (a *Action) Finds(o Observed) (halfMade []string, settled bool) {
	for i := range o.Containers {
		c := &o.Containers[i]
		switch {
		case c.Name != a.Container:
		case c.Live(), c.Ended() && c.RestartCount == a.Attempt && c.SandboxID == a.SandboxID:
			return halfMade, true
		case c.Created() && !slices.Contains(a.Beside, c.ID):
			halfMade = append(halfMade, c.ID)
		}
	}
	return halfMade, false
}

// Unremovable is that the runtime refuses to remove a container which was made and never
// started: containerd does when it has lost count of its process, as the start was cut
// short. Nobody starts it any more, and it goes with its pod.
type Unremovable struct {
	// ID is the container's.
	ID string
	// Err is what the runtime says.
	Err error
}

// Error implements error.
func (u Unremovable) Error() string { return u.Err.Error() }

// Unwrap is what the runtime says.
func (u Unremovable) Unwrap() error { return u.Err }

// Made says whether what a MakeSandbox or StartContainer is to make is there, whoever made
// it: an earlier call of it, whose answer was lost.
func (a *Action) Made(o Observed) bool {
	if a.Kind == MakeSandbox {
		return slices.ContainsFunc(o.Sandboxes, func(s Sandbox) bool { return s.Attempt == uint32(a.Attempt) })
	}
	return slices.ContainsFunc(o.Containers, func(c Container) bool { return c.Name == a.Container && c.RestartCount == a.Attempt })
}

// Process is how the process of a sandbox stands.
type Process int

// The states of a process.
const (
	// ProcessNotAsked: it was not asked for.
	ProcessNotAsked Process = iota
	// ProcessNotKnown: the runtime does not say, or has the sandbox ready no more.
	ProcessNotKnown
	// ProcessAlive: it runs, or the runtime knows of none.
	ProcessAlive
	// ProcessDead: it is not there, or cannot be seen from here.
	ProcessDead
)

// SandboxSeen is what is known of the sandbox of a start.
type SandboxSeen struct {
	Process Process
	// Asked: the runtime was asked whether it is down, and Down if it said so.
	Asked, Down bool
	// At is the time.
	At time.Time
}

// SandboxCheck is what is to be made of it.
type SandboxCheck int

// The answers.
const (
	// SandboxStands: go on with the start.
	SandboxStands SandboxCheck = iota
	// SandboxGoes: it comes to nothing.
	SandboxGoes
	// AskProcess, AskRuntime, AskAgain: it is not known yet. Ask for the sandbox's
	// process, ask the runtime whether it is down, ask that once more in a moment.
	AskProcess
	AskRuntime
	AskAgain
)

// CheckOf says whether the sandbox of a StartContainer is down or on its way out, or what
// is still to be asked. A runtime that takes a sandbox away ends its process a while
// before it says that the sandbox is down: where SandboxUntil is set the process is asked
// first, and when it is dead the runtime is waited for, until then at most, for a process
// that cannot be seen from here looks the same. A runtime that does not answer has not
// said that it is down.
func (a *Action) CheckOf(s SandboxSeen) SandboxCheck {
	quick := !a.SandboxUntil.IsZero()
	switch {
	case s.Down:
		return SandboxGoes
	case quick && s.Process == ProcessNotAsked:
		return AskProcess
	case quick && s.Process == ProcessAlive:
		return SandboxStands
	case !s.Asked:
		return AskRuntime
	case quick && s.Process == ProcessDead && s.At.Before(a.SandboxUntil):
		return AskAgain
	}
	return SandboxStands
}

// NotStarted is what is found of a start that the runtime did not carry out.
type NotStarted struct {
	// SandboxDown: its sandbox went down meanwhile.
	SandboxDown bool
	// Made is what was made for it; nil when nothing was. Unseen: something was, and it
	// could not be looked at. Stays: it could not be removed.
	Made          *Container
	Unseen, Stays bool
}

// StartCount is what a start counts as.
type StartCount int

// What a start may count as.
const (
	// StartFailed: it was one, and has failed.
	StartFailed StartCount = iota
	// NoStart: it was none, since its sandbox went down. What was made for it has to
	// go, so that it is not counted.
	NoStart
	// StartRan: the container ran all the same, though the runtime's answer says
	// otherwise; its end counts like any other.
	StartRan
)

// Counts says what the start counts as.
func (n NotStarted) Counts() StartCount {
	switch {
	case !n.SandboxDown || n.Unseen || n.Stays:
		return StartFailed
	case n.Made.Ran():
		return StartRan
	}
	return NoStart
}
