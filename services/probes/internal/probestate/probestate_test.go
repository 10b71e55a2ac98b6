package probestate

import (
	"testing"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func target(typ probe.Type, edit func(*probe.Target)) probe.Target {
	t := probe.Target{
		Key: probe.Key{PodUID: "u", Container: "c", Type: typ}, ContainerID: "id", ContainerStart: start,
		Started: typ != probe.Startup, Period: 10 * time.Second, Timeout: time.Second,
		SuccessThreshold: 1, FailureThreshold: 3, Handler: probe.TCPSocket{Port: 1},
	}
	if edit != nil {
		edit(&t)
	}
	return t
}

// play lets a probe run for the given time with verdicts from f, attempts
// taking no time, and returns when each outcome came to stand.
type change struct {
	at      time.Duration
	outcome probe.Outcome
}

func play(s State, until time.Duration, f func(at time.Duration, tick bool) probe.Verdict) (changes []change, ticks, early []time.Duration) {
	for {
		at, tick, ok := s.Next()
		if !ok || at.Sub(start) > until {
			return changes, ticks, early
		}
		since := at.Sub(start)
		if tick {
			ticks = append(ticks, since)
		} else {
			early = append(early, since)
		}
		var changed bool
		if s, changed = s.Observe(f(since, tick), tick, at); changed {
			o, _ := s.Outcome()
			changes = append(changes, change{since, o})
		}
	}
}

func always(v probe.Verdict) func(time.Duration, bool) probe.Verdict {
	return func(time.Duration, bool) probe.Verdict { return v }
}

func from(at time.Duration) func(time.Duration, bool) probe.Verdict {
	return func(now time.Duration, _ bool) probe.Verdict {
		if now >= at {
			return probe.Passed
		}
		return probe.Failed
	}
}

func TestReadinessIsFoundSoonAfterTheApplicationListens(t *testing.T) {
	for _, listens := range []time.Duration{0, time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
		changes, _, _ := play(Begin(target(probe.Readiness, nil), start), 11*time.Second, from(listens))
		if len(changes) != 1 || changes[0].outcome != probe.Success {
			t.Fatalf("listens after %v: changes %v, want one success", listens, changes)
		}
		if late := changes[0].at - listens; late > max(30*time.Millisecond, listens*7/10) {
			t.Errorf("listens after %v: success %v later", listens, late)
		}
	}
}

func TestEarlyAttemptsEndWithinAPeriodAndDoNotCountFailures(t *testing.T) {
	for _, typ := range []probe.Type{probe.Readiness, probe.Startup} {
		changes, ticks, early := play(Begin(target(typ, nil), start), 45*time.Second, always(probe.Failed))
		if len(changes) != 1 || changes[0].outcome != probe.Failure || changes[0].at < 30*time.Second || changes[0].at > 31*time.Second {
			t.Errorf("%v: %v, want one failure at the third tick, 30 to 31 s after the start", typ, changes)
		}
		if len(early) < 8 || len(early) > 20 || early[0] != 0 || early[len(early)-1] > 30*time.Second {
			t.Errorf("%v: early attempts at %v", typ, early)
		}
		if want := map[probe.Type]int{probe.Readiness: 4, probe.Startup: 3}[typ]; len(ticks) != want {
			t.Errorf("%v: ticks at %v, want %d", typ, ticks, want)
		}
	}
}

func TestExecProbesTryEarlyLessOften(t *testing.T) {
	_, _, early := play(Begin(target(probe.Readiness, func(t *probe.Target) { t.Handler = probe.Exec{} }), start), 5*time.Second, always(probe.Failed))
	if len(early) > 7 {
		t.Errorf("%d early attempts in 5 s: %v", len(early), early)
	}
}

func TestLivenessIsProbedAtTicksOnlyFromAPeriodAfterTheStart(t *testing.T) {
	_, ticks, early := play(Begin(target(probe.Liveness, nil), start), 35*time.Second, always(probe.Passed))
	if len(early) != 0 || len(ticks) != 3 {
		t.Fatalf("early %v, ticks %v", early, ticks)
	}
	for i, at := range ticks {
		if earliest := time.Duration(i+1) * 10 * time.Second; at < earliest || at >= earliest+maxSpread {
			t.Errorf("tick %d at %v", i, at)
		}
	}
}

func TestLivenessHoldsAfterItsFailureThreshold(t *testing.T) {
	s := Begin(target(probe.Liveness, nil), start)
	changes, ticks, _ := play(s, time.Hour, always(probe.Failed))
	if len(ticks) != 3 || len(changes) != 1 || changes[0].outcome != probe.Failure {
		t.Errorf("ticks %v, changes %v; want three ticks and one failure, then nothing", ticks, changes)
	}
}

func TestStartupHoldsAfterItsFirstSuccess(t *testing.T) {
	changes, ticks, early := play(Begin(target(probe.Startup, nil), start), time.Hour, always(probe.Passed))
	if len(changes) != 1 || changes[0] != (change{0, probe.Success}) || len(ticks) != 0 || len(early) != 1 {
		t.Errorf("changes %v ticks %v early %v", changes, ticks, early)
	}
}

func TestNothingIsProbedBeforeTheInitialDelay(t *testing.T) {
	for _, typ := range []probe.Type{probe.Liveness, probe.Readiness, probe.Startup} {
		s := Begin(target(typ, func(t *probe.Target) { t.InitialDelay = 15 * time.Second }), start)
		at, _, ok := s.Next()
		if !ok || at.Sub(start) < 15*time.Second || at.Sub(start) > 21*time.Second {
			t.Errorf("%v: first attempt after %v (%v)", typ, at.Sub(start), ok)
		}
		if typ == probe.Readiness && at.Sub(start) != 15*time.Second {
			t.Errorf("readiness is first probed after %v, want right after the delay", at.Sub(start))
		}
	}
}

func TestTheStartedGateSeparatesStartupFromTheOthers(t *testing.T) {
	for _, typ := range []probe.Type{probe.Liveness, probe.Readiness, probe.Startup} {
		shut := target(typ, func(t *probe.Target) { t.Started = typ == probe.Startup })
		s := Begin(shut, start)
		if _, _, ok := s.Next(); ok {
			t.Errorf("%v is probed behind the gate", typ)
		}
		now := start.Add(time.Minute)
		s = s.Update(target(typ, nil), now)
		at, _, ok := s.Next()
		if !ok || at.Before(now) || at.After(now.Add(11*time.Second)) {
			t.Errorf("%v: gate opened, next attempt %v later (%v)", typ, at.Sub(now), ok)
		}
		if typ == probe.Readiness && !at.Equal(now) {
			t.Errorf("readiness waits %v after the gate opened", at.Sub(now))
		}
	}
}

func TestThresholdsCountConsecutiveEqualAttempts(t *testing.T) {
	for _, c := range []struct {
		name             string
		verdicts         string // at ticks: + - e(rror) s(kip)
		success, failure int
		last             probe.Outcome
		want             string // changes: n:outcome
	}{
		{"failures below the threshold change nothing", "--+--+", 1, 3, probe.Success, ""},
		{"failures at the threshold flip", "---", 1, 3, probe.Success, "2-"},
		{"one success flips back", "---+", 1, 3, probe.Success, "2-3+"},
		{"success threshold is honoured", "---+-++", 2, 3, probe.Success, "2-6+"},
		{"errors neither count nor interrupt", "-e-s-", 1, 3, probe.Success, "4-"},
		{"nothing changes when the outcome stands already", "----", 1, 1, probe.Failure, ""},
		{"an unknown outcome becomes a failure at the threshold", "---", 1, 3, probe.Unknown, "2-"},
	} {
		s := Begin(target(probe.Readiness, func(t *probe.Target) {
			t.SuccessThreshold, t.FailureThreshold, t.LastOutcome = c.success, c.failure, c.last
		}), start.Add(time.Hour))
		got, now := "", start.Add(time.Hour)
		for i, v := range c.verdicts {
			now = now.Add(10 * time.Second)
			verdict := map[rune]probe.Verdict{'+': probe.Passed, '-': probe.Failed, 'e': probe.Errored, 's': probe.Skipped}[v]
			var changed bool
			if s, changed = s.Observe(verdict, true, now); changed {
				o, _ := s.Outcome()
				got += string(rune('0'+i)) + map[probe.Outcome]string{probe.Success: "+", probe.Failure: "-"}[o]
			}
		}
		if got != c.want {
			t.Errorf("%s: changes %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSuccessesThatAreCountedLieAPeriodApart(t *testing.T) {
	s := Begin(target(probe.Readiness, func(t *probe.Target) { t.SuccessThreshold = 3 }), start)
	changes, _, early := play(s, time.Minute, always(probe.Passed))
	if len(early) != 1 || len(changes) != 1 || changes[0] != (change{20 * time.Second, probe.Success}) {
		t.Errorf("early %v, changes %v; want success at the third attempt, 20 s after the first", early, changes)
	}
}

func TestARestartGoesOnFromTheOutcomeThatPodsyncHolds(t *testing.T) {
	now := start.Add(time.Hour + 3*time.Second)
	for _, c := range []struct {
		typ    probe.Type
		last   probe.Outcome
		active bool
	}{
		{probe.Readiness, probe.Success, true},
		{probe.Readiness, probe.Failure, true},
		{probe.Liveness, probe.Success, true},
		{probe.Liveness, probe.Failure, false},
		{probe.Startup, probe.Success, false},
		{probe.Startup, probe.Failure, false},
	} {
		s := Begin(target(c.typ, func(t *probe.Target) { t.LastOutcome = c.last }), now)
		if o, _ := s.Outcome(); o != c.last {
			t.Errorf("%v %v became %v", c.typ, c.last, o)
		}
		at, tick, ok := s.Next()
		if ok != c.active {
			t.Errorf("%v %v: probed: %v, want %v", c.typ, c.last, ok, c.active)
		}
		if ok && (!tick || at.Before(now) || at.After(now.Add(10*time.Second))) {
			t.Errorf("%v %v: next attempt after %v, tick %v", c.typ, c.last, at.Sub(now), tick)
		}
	}
}

func TestTicksOfContainersStartedInTheSameSecondAreSpread(t *testing.T) {
	slots := map[time.Duration]int{}
	for i := range 500 {
		s := Begin(target(probe.Liveness, func(t *probe.Target) { t.Key.PodUID = string(rune('a'+i%26)) + time.Duration(i).String() }), start)
		at, _, _ := s.Next()
		slots[at.Sub(start)/(50*time.Millisecond)]++
	}
	for slot, n := range slots {
		if n > 60 {
			t.Errorf("%d of 500 ticks fall into the 50 ms from %v", n, slot*50*time.Millisecond)
		}
	}
}

func TestASlowAttemptMakesUpForOneTickOnly(t *testing.T) {
	s := Begin(target(probe.Liveness, nil), start)
	at, _, _ := s.Next()
	ended := at.Add(35 * time.Second)
	s, _ = s.Observe(probe.Failed, true, ended)
	next, _, _ := s.Next()
	if want := at.Add(30 * time.Second); !next.Equal(want) {
		t.Fatalf("next attempt at %v, want the last missed tick %v", next, want)
	}
	s, _ = s.Observe(probe.Failed, true, ended)
	if next, _, _ = s.Next(); !next.Equal(at.Add(40 * time.Second)) {
		t.Errorf("then %v, want the tick after", next)
	}
}

// What the runtime says of a start is a time of the wall clock. Attempts that were
// planned by that clock would all wait for as long as it was set back.
func TestAWallClockThatIsSetBackHoldsUpNoAttempt(t *testing.T) {
	now := time.Now()
	started := now.Round(0).Add(-time.Hour)
	for _, typ := range []probe.Type{probe.Liveness, probe.Readiness, probe.Startup} {
		s := Begin(target(typ, func(t *probe.Target) { t.ContainerStart = started }), now)
		for i := range 20 {
			at, tick, ok := s.Next()
			if !ok || at == at.Round(0) {
				t.Errorf("%v: attempt %d is planned by the wall clock: %v", typ, i, at)
			}
			s, _ = s.Observe(probe.Errored, tick, at)
		}
		s = s.Update(target(typ, func(t *probe.Target) { t.ContainerStart = started.Add(time.Minute) }), now)
		if at, _, ok := s.Next(); ok && at == at.Round(0) {
			t.Errorf("%v: after a change it is planned by the wall clock: %v", typ, at)
		}
	}
}
