// Package probestate is the state machine of one probe: when to try next, and
// what an attempt changes. It is pure: no clock, no I/O, no lock. It must never
// decide how an attempt is made.
//
// Two kinds of attempts exist. Ticks lie at whole periods after the container's
// start (plus a small spread by key), which is where a kubelet's ticker lies
// for a pod that it has just started; only they count failures. Early attempts
// lie between them, growing apart, while readiness or startup has never
// succeeded: they can only turn a probe to success sooner, so an application
// that listens 40 ms after its start need not wait for the next period.
//
// Source: https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
package probestate

import (
	"hash/fnv"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// Early attempts against the network cost little and begin close together;
// those that run a command in the container cost a process each.
const (
	earlyNetwork = 25 * time.Millisecond
	earlyExec    = 200 * time.Millisecond
	// earlyGrowth is the factor between two distances, in tenths.
	earlyGrowth = 16
	// maxSpread bounds the spread of ticks by key: enough to pull apart the
	// containers of a runtime that reports start times in whole seconds.
	maxSpread = time.Second
)

// State is one probe of one container id. The zero value is not usable; see Begin.
type State struct {
	target probe.Target
	start  time.Time

	outcome probe.Outcome
	since   time.Time
	streak  int
	passed  bool
	hold    bool

	nextTick  time.Time
	aligned   bool // nextTick is where tickAfter says
	nextEarly time.Time
	distance  time.Duration
}

// Begin returns the state of a target that is new to this process. An outcome
// that podsync holds is gone on from, and so is the count of what speaks against
// it: a restart of probes changes nothing.
func Begin(t probe.Target, now time.Time) State {
	s := State{target: t, start: startOf(t, now), outcome: t.LastOutcome, since: now}
	s.hold = holds(t.Key.Type, s.outcome)
	if c := t.LastCount; c.Successes > 0 && s.outcome != probe.Success {
		s.streak, s.passed = c.Successes, true
	} else if c.Failures > 0 && s.outcome != probe.Failure {
		s.streak = c.Failures
	}
	s.plan(now)
	return s
}

// startOf is when the target's container started, now where that is not known. What
// the runtime says is a time of the wall clock, which may be set back; counted from
// now, attempts do not wait for it.
func startOf(t probe.Target, now time.Time) time.Time {
	if t.ContainerStart.IsZero() || t.ContainerStart.After(now) {
		return now
	}
	return now.Add(-now.Sub(t.ContainerStart))
}

// holds reports whether an outcome ends the probe until a new container id: a
// startup probe that has any, a liveness probe that failed.
func holds(t probe.Type, o probe.Outcome) bool {
	return t == probe.Startup && o != probe.Unknown || t == probe.Liveness && o == probe.Failure
}

// Update takes over what podsync changed about the same container id, such as
// the started flag, and returns the new state. An outcome found is kept.
func (s State) Update(t probe.Target, now time.Time) State {
	opened := s.gated() && !gated(t)
	retimed := t.Period != s.target.Period || t.InitialDelay != s.target.InitialDelay
	if !t.ContainerStart.IsZero() && !t.ContainerStart.Equal(s.target.ContainerStart) && !t.ContainerStart.After(now) {
		s.start, retimed = startOf(t, now), true
	}
	s.target = t
	if opened || retimed {
		s.plan(now)
	}
	return s
}

// plan sets the times of the next tick and of the first early attempt.
func (s *State) plan(now time.Time) {
	s.nextTick, s.aligned = s.tickAfter(now), true
	s.nextEarly, s.distance = time.Time{}, 0
	begin := s.start.Add(s.target.InitialDelay)
	fresh := s.outcome == probe.Unknown || s.outcome == probe.Failure && now.Before(begin.Add(s.period()))
	if s.target.Key.Type == probe.Liveness || !fresh {
		return
	}
	s.nextEarly = later(now, begin)
	s.distance = earlyNetwork
	if _, exec := s.target.Handler.(probe.Exec); exec {
		s.distance = earlyExec
	}
}

// tickAfter returns the first tick after t.
func (s *State) tickAfter(t time.Time) time.Time {
	period := s.period()
	spread := time.Duration(hash(s.target.Key) % uint64(min(period, maxSpread)))
	first := s.start.Add(max(period, (s.target.InitialDelay+period-1)/period*period) + spread)
	if t.Before(first) {
		return first
	}
	return first.Add((t.Sub(first)/period + 1) * period)
}

func (s *State) period() time.Duration { return max(s.target.Period, time.Millisecond) }

// Next returns when to try next, and whether that is a tick. ok is false while
// the probe is on hold or behind the started gate.
func (s State) Next() (at time.Time, tick, ok bool) {
	if s.hold || s.gated() {
		return time.Time{}, false, false
	}
	if !s.nextEarly.IsZero() && s.nextEarly.Before(s.nextTick) {
		return s.nextEarly, false, true
	}
	return s.nextTick, true, true
}

func (s State) gated() bool { return gated(s.target) }

func gated(t probe.Target) bool {
	if t.Key.Type == probe.Startup {
		return t.Started
	}
	return !t.Started
}

// Observe takes an attempt's verdict at the time it ended, and returns the new
// state and whether the outcome that stands changed. Early attempts that fail,
// and attempts that say nothing about the container, only move the schedule.
func (s State) Observe(v probe.Verdict, tick bool, now time.Time) (next State, changed bool) {
	s.advance(tick, now)
	var success bool
	switch v {
	case probe.Passed, probe.Warned:
		success = true
		s.nextEarly = time.Time{}
		s.afterSuccess(tick, now)
	case probe.Failed:
		if !tick {
			return s, false
		}
	default:
		return s, false
	}
	if s.streak > 0 && s.passed == success {
		s.streak++
	} else {
		s.streak, s.passed = 1, success
	}
	return s.judge(success, now)
}

// afterSuccess plans the tick after a success. Further ones that count lie a
// whole period apart; once enough did, the ticks are where they always are, for
// containers that began together are to be pulled apart again.
func (s *State) afterSuccess(tick bool, now time.Time) {
	counted := 1
	if s.passed {
		counted += s.streak
	}
	switch {
	case counted >= s.target.SuccessThreshold && !s.aligned:
		s.nextTick, s.aligned = s.tickAfter(now), true
	case counted < s.target.SuccessThreshold && !tick:
		s.nextTick, s.aligned = now.Add(s.period()), false
	}
}

func (s State) judge(success bool, now time.Time) (State, bool) {
	outcome, threshold := probe.Failure, s.target.FailureThreshold
	if success {
		outcome, threshold = probe.Success, s.target.SuccessThreshold
	}
	if s.streak < max(threshold, 1) || s.outcome == outcome {
		return s, false
	}
	s.outcome, s.since = outcome, now
	s.hold = holds(s.target.Key.Type, outcome)
	if s.hold {
		s.streak = 0
	}
	return s, true
}

// advance moves the schedule past an attempt that ended now.
func (s *State) advance(tick bool, now time.Time) {
	if tick {
		// A tick that lies ahead was planned anew while the attempt ran.
		if !s.nextTick.After(now) {
			s.nextTick = later(s.nextTick.Add(s.period()), s.lastMissed(now))
		}
		if !s.nextEarly.IsZero() {
			s.nextEarly = later(s.nextEarly, now.Add(s.distance))
		}
		return
	}
	if s.nextEarly.IsZero() {
		return
	}
	s.nextEarly = now.Add(s.distance)
	s.distance = s.distance * earlyGrowth / 10
	if s.distance > s.period() {
		s.nextEarly = time.Time{}
	}
}

// lastMissed is the latest tick that is not after now: after a slow attempt,
// ticks that passed meanwhile are made up for once, at once, like a ticker's.
func (s *State) lastMissed(now time.Time) time.Time {
	return s.nextTick.Add(now.Sub(s.nextTick) / s.period() * s.period())
}

// Target returns what is probed.
func (s State) Target() probe.Target { return s.target }

// Outcome returns what stands, and since when.
func (s State) Outcome() (probe.Outcome, time.Time) { return s.outcome, s.since }

// Streak returns how many equal attempts that count came in a row, and whether
// they succeeded.
func (s State) Streak() (n int, passed bool) { return s.streak, s.passed }

// Count is how many attempts in a row speak against the outcome that stands.
func (s State) Count() probe.Count {
	switch {
	case s.hold || s.streak == 0:
	case s.passed && s.outcome != probe.Success:
		return probe.Count{Successes: s.streak}
	case !s.passed && s.outcome != probe.Failure:
		return probe.Count{Failures: s.streak}
	}
	return probe.Count{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func hash(k probe.Key) uint64 {
	h := fnv.New64a()
	h.Write([]byte(k.PodUID))
	h.Write([]byte{0})
	h.Write([]byte(k.Container))
	h.Write([]byte{0, byte(k.Type)})
	return h.Sum64()
}
