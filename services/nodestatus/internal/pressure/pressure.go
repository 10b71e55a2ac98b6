// Package pressure judges whether the node is under pressure, and which
// thresholds have to be acted upon, from the eviction signals and the thresholds.
// It is pure: a step takes the state, the signals and the time, and returns the new
// state. It must never read a clock, measure, or write a condition.
package pressure

import (
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/threshold"
)

// Kind is a kind of pressure.
type Kind string

// Kinds, each the name of the node condition.
const (
	Memory Kind = "MemoryPressure"
	Disk   Kind = "DiskPressure"
	PID    Kind = "PIDPressure"
)

// Kinds returns all kinds in the order of the node's conditions.
func Kinds() []Kind { return []Kind{Memory, Disk, PID} }

// KindOf says which pressure a signal means.
func KindOf(signal string) Kind {
	switch signal {
	case threshold.Memory, threshold.AllocatableMemory:
		return Memory
	case threshold.PID:
		return PID
	}
	return Disk
}

// Signal is what is left of a resource.
type Signal struct {
	// Name is the kubelet's.
	Name string
	// Available of Capacity is left.
	Available, Capacity uint64
	// Time is when it was measured; zero is not known.
	Time time.Time
}

// Credible says whether it can be true. What cannot is taken for nothing.
func (s Signal) Credible() bool { return s.Capacity > 0 && s.Available <= s.Capacity }

// Says says whether there is one of this name that can be true.
func Says(signals []Signal, name string) bool {
	return slices.ContainsFunc(signals, func(s Signal) bool { return s.Name == name && s.Credible() })
}

// Told is what a run before this one has told podsync.
type Told struct {
	Kinds []Kind
	// Time is when; zero: podsync knows of nothing, for it was started since.
	Time time.Time
}

// Frame is what is left of everything at one time.
type Frame struct {
	// Signals are nil before the first.
	Signals []Signal
	// Layout is that of the node's filesystems.
	Layout threshold.Layout
	// Heard is when the frame came.
	Heard time.Time
}

// Met is a threshold that is met.
type Met struct {
	threshold.Threshold
	// By is the signal that says so.
	By Signal
	// Since is when it was first.
	Since time.Time
}

// State is what a judgement has to remember. The zero value remembers nothing.
type State struct {
	// since is since when each threshold is met.
	since map[threshold.Threshold]time.Time
	// due are those that counted at the last step: they are met until what has to be
	// reclaimed at least is there, too.
	due map[threshold.Threshold]bool
	// last is when each pressure was last seen.
	last map[Kind]time.Time
}

// Seed returns the state of a node that, according to somebody else, had these
// pressures then: they stay for the transition period from there unless seen again.
func (s State) Seed(present []Kind, then time.Time) State {
	next := State{since: s.since, due: s.due, last: map[Kind]time.Time{}}
	for kind, at := range s.last {
		next.last[kind] = at
	}
	for _, kind := range present {
		if _, seen := next.last[kind]; !seen {
			next.last[kind] = then
		}
	}
	return next
}

// Judgement is how the node stands.
type Judgement struct {
	// Under has the pressures that there are.
	Under map[Kind]bool
	// Due are the thresholds that are met and whose grace period has passed, in the
	// order of the configuration.
	Due []Met
	// Waits are those that are met and whose grace period runs, in that order, too.
	Waits []Met
	// Again is when the judgement may change without new signals; zero when it does
	// not.
	Again time.Time
}

// Step judges. A pressure is there as soon as a threshold is met, whatever its
// grace period, and until none was for the transition period; a threshold is due
// after its grace period.
func Step(s State, thresholds []threshold.Threshold, signals []Signal, transition time.Duration, now time.Time) (State, Judgement) {
	byName := make(map[string]Signal, len(signals))
	for _, signal := range signals {
		byName[signal.Name] = signal
	}
	next := State{since: map[threshold.Threshold]time.Time{}, due: map[threshold.Threshold]bool{}, last: map[Kind]time.Time{}}
	for kind, at := range s.last {
		next.last[kind] = at
	}
	out := Judgement{Under: map[Kind]bool{}}
	for _, t := range thresholds {
		signal, ok := byName[t.Signal]
		if !ok || !signal.Credible() || !short(t, signal, s.due[t]) {
			continue
		}
		since, before := s.since[t]
		if !before {
			since = now
		}
		met := Met{Threshold: t, By: signal, Since: since}
		next.since[t] = since
		next.last[KindOf(t.Signal)] = now
		if end := since.Add(t.Grace); end.After(now) {
			out.Again = earliest(out.Again, end)
			out.Waits = append(out.Waits, met)
			continue
		}
		next.due[t] = true
		out.Due = append(out.Due, met)
	}
	for kind, at := range next.last {
		switch end := at.Add(transition); {
		case at.Equal(now):
			out.Under[kind] = true
		case end.After(now):
			out.Under[kind] = true
			out.Again = earliest(out.Again, end)
		default:
			delete(next.last, kind)
		}
	}
	return next, out
}

// short says whether a threshold is met; one that was acted upon is until what has
// to be reclaimed is there, too.
func short(t threshold.Threshold, s Signal, acted bool) bool {
	if acted {
		return s.Available < t.Enough(s.Capacity)
	}
	return s.Available < t.Of(s.Capacity)
}

// Names are the conditions that are true, in their order.
func (j Judgement) Names() []string {
	var out []string
	for _, kind := range Kinds() {
		if j.Under[kind] {
			out = append(out, string(kind))
		}
	}
	return out
}

// String is for logs.
func (j Judgement) String() string { return strings.Join(j.Names(), ", ") }

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
