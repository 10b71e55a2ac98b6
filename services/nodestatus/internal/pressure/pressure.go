// Package pressure judges whether the node is under pressure, from the
// eviction signals and the thresholds. It is pure: a step takes the state, the
// signals and the time, and returns the new state. It must never read a clock, measure,
// or write a condition.
package pressure

import (
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/threshold"
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

// kindOf says which pressure a signal means.
func kindOf(signal string) Kind {
	switch signal {
	case "memory.available", "allocatableMemory.available":
		return Memory
	case "pid.available":
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
}

// State is what a judgement has to remember. The zero value remembers nothing.
type State struct {
	// metSince is since when each soft threshold is met, by its index.
	metSince map[int]time.Time
	// last is when each pressure was last seen.
	last map[Kind]time.Time
}

// Seed returns the state of a node that had these pressures before this
// process started: they stay for the transition period unless seen again.
func Seed(present []Kind, now time.Time) State {
	s := State{last: map[Kind]time.Time{}}
	for _, kind := range present {
		s.last[kind] = now
	}
	return s
}

// Step judges. A threshold counts once it was met for its grace period; a
// pressure ends when it was not seen for the transition period. again is when
// the judgement may change without new signals; zero when it does not.
func Step(s State, thresholds []threshold.Threshold, signals []Signal, transition time.Duration, now time.Time) (next State, under map[Kind]bool, again time.Time) {
	byName := make(map[string]Signal, len(signals))
	for _, signal := range signals {
		byName[signal.Name] = signal
	}
	next = State{metSince: map[int]time.Time{}, last: map[Kind]time.Time{}}
	for kind, at := range s.last {
		next.last[kind] = at
	}
	for i, t := range thresholds {
		signal, ok := byName[t.Signal]
		if !ok || signal.Available >= t.Of(signal.Capacity) {
			continue
		}
		since, before := s.metSince[i]
		if !before {
			since = now
		}
		next.metSince[i] = since
		if due := since.Add(t.Grace); due.After(now) {
			again = earliest(again, due)
			continue
		}
		next.last[kindOf(t.Signal)] = now
	}
	under = map[Kind]bool{}
	for kind, at := range next.last {
		switch end := at.Add(transition); {
		case at.Equal(now):
			under[kind] = true
		case end.After(now):
			under[kind] = true
			again = earliest(again, end)
		default:
			delete(next.last, kind)
		}
	}
	return next, under, again
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
