package plan

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// A container whose exit of its own matches a rule with the action RestartAllContainers
// begins a new round of its pod: every container of an earlier round is killed
// without grace, and then all start again, init containers first, in the same
// sandbox. Each container carries its round, so what belongs to which follows
// from what the runtime has, whatever was under way and whoever crashed.
// Source: KEP-5532.
const (
	reasonRestartingAll  = "RestartingAllContainers"
	messageRestartingAll = "The container was ended because a container of the pod exited with a code that restarts all of them"
)

// findRound finds the pod's round, and takes what is of an earlier one out of
// what counts for the sandbox. In a pod that ends none begins any more: how its
// containers exit then is how they ended.
func (p *planner) findRound() {
	ends := p.end != nil || !p.s.EndSince.IsZero()
	next := 0
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		v := p.viewOf(c.Name)
		if v == nil || v.class == ephemeral {
			continue
		}
		p.round = max(p.round, c.Round)
		if !ends && p.causesRound(v, c) {
			next = max(next, c.Round+1)
		}
	}
	for k, a := range p.s.InFlight {
		if v := p.viewOf(a.Container); k.Kind == podstate.StartContainer && v != nil && v.class != ephemeral {
			p.round = max(p.round, a.Round) // what begins it need not be seen yet
		}
	}
	if p.startsFirst = next > p.round && p.unfinishedStarts(); !p.startsFirst {
		p.round = max(p.round, next)
	}
	before := p.earlier()
	for _, v := range p.views {
		v.enter(p.round, before)
	}
}

// earlier is what the runtime has of the rounds before the pod's.
type earlier struct {
	lives bool
	last  time.Time // when the last of them ended
}

func (p *planner) earlier() (before earlier) {
	if p.round == 0 {
		return before
	}
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if v := p.viewOf(c.Name); v == nil || v.class == ephemeral || c.Round >= p.round {
			continue
		}
		before.lives = before.lives || c.Live()
		if c.FinishedAt.After(before.last) {
			before.last = c.FinishedAt
		}
	}
	return before
}

// roundOf is the round of a container of which the status alone is left, in a pod that is
// in this one. What began before all of an earlier round had ended is of an earlier one;
// times of a status have whole seconds.
func (e earlier) roundOf(lost *podstate.Container, round int) int {
	if !lost.StartedAt.IsZero() && (e.lives || lost.StartedAt.Before(e.last.Truncate(time.Second))) {
		return round - 1
	}
	return round
}

// causesRound says whether the exit of a container restarts all of the pod. That of
// one that was started again alone does not: a later run knows no more of why than
// its record.
func (p *planner) causesRound(v *view, c *podstate.Container) bool {
	return p.asksForAll(v, c) && (v.newest() == nil || v.newest().ID == c.ID) && !p.overBefore(v, c)
}

// overBefore says whether the pod had come to its end when a sidecar exited: nobody
// looked, else the sidecar would have been stopped. Its exit restarts nothing then. A
// round that was told to have begun goes on; the order of the exits tells the rest.
func (p *planner) overBefore(sidecarView *view, c *podstate.Container) bool {
	if sidecarView.class != sidecar || p.toldRestarting() {
		return false
	}
	all := p.regularEnds()
	// What was killed for a new round has not ended well.
	return all.over && all.round >= c.Round && (!all.last.After(c.FinishedAt) || all.well)
}

// regularEnds is how the regular containers have ended.
type regularEnds struct {
	known bool
	// over: all have, and none of them starts again.
	over bool
	// round is the earliest of theirs, and last when the last of them ended.
	round int
	last  time.Time
	// well: none has failed.
	well bool
}

func (p *planner) regularEnds() *regularEnds {
	all := &p.ends
	if all.known {
		return all
	}
	*all = regularEnds{known: true, over: true, well: true, round: math.MaxInt}
	for _, v := range p.views {
		if v.class != regular {
			continue
		}
		last := v.newest()
		if !last.Ended() || v.renewed(last) || p.owed(v, last) || p.byPolicy(v, last) {
			all.over = false
			return all
		}
		all.round, all.well = min(all.round, last.Round), all.well && last.ExitCode == 0
		if last.FinishedAt.After(all.last) {
			all.last = last.FinishedAt
		}
	}
	return all
}

// toldRestarting says whether the world was told that all containers are restarted.
func (p *planner) toldRestarting() bool {
	c := podutil.Condition(p.s.Reported.Conditions, v1.AllContainersRestarting)
	return c != nil && c.Status == v1.ConditionTrue
}

// asksForAll says whether a container exited of its own in a way that restarts all
// of its pod. What podsync ends so that it starts again, alone or with the others,
// has not.
// Source: KEP-5307, restart rules and probes.
func (p *planner) asksForAll(v *view, c *podstate.Container) bool {
	if p.rule(v, c) != v1.ContainerRestartRuleActionRestartAllContainers {
		return false
	}
	cause, ours := p.stopCause(c)
	return !ours || cause == podstate.CauseSandbox || !p.restartsAfter(v, cause)
}

// unfinishedStarts says whether regular containers of this round still have
// their first start to come after others of it have had theirs. A new round
// waits for them: all begin a round, so that all are restarted by the next, as
// when starts are one pass that nothing interrupts. One that cannot start is
// not waited for, nor, once the others are being killed, one that can by then.
func (p *planner) unfinishedStarts() bool {
	if p.s.Volumes.fails() || p.sandbox == nil || p.toldRestarting() {
		return false
	}
	begun, missing := false, false
	for _, v := range p.views {
		if v.class != regular {
			continue
		}
		_, failed := p.s.Failures[podstate.Key{Kind: podstate.StartContainer, Object: v.spec.Name}]
		begun = begun || v.here() != nil && v.here().Round == p.round
		missing = missing || v.newest() == nil && !failed && !p.pullFailed(v)
	}
	return begun && missing
}

// restartingAll says whether the pod is between two rounds: something of the
// earlier one lives or starts, or nothing of the new one was made.
func (p *planner) restartingAll() bool { return p.betweenTheRounds.ask(p.restartsAll) }

func (p *planner) restartsAll() bool {
	if p.round == 0 || p.sandbox == nil {
		return false
	}
	begun := false
	for _, v := range p.views {
		if v.newest() == nil || v.class == ephemeral {
			continue
		}
		if v.stale(v.newest()) && v.newest().Live() {
			return true
		}
		begun = begun || !v.stale(v.newest())
	}
	return !begun || p.staleStarts()
}

// staleStarts says whether a start of an earlier round is under way.
func (p *planner) staleStarts() bool {
	for k, a := range p.s.InFlight {
		if v := p.viewOf(a.Container); k.Kind == podstate.StartContainer && v != nil && v.class != ephemeral && a.Round < p.round {
			return true
		}
	}
	return false
}

// betweenRounds says whether what is old has to end before anything starts. A
// start of the earlier round comes to its end first: cut short, it would not
// count as a restart.
func (p *planner) betweenRounds() bool {
	between := false
	for _, v := range p.views {
		if v.class == ephemeral {
			continue
		}
		if a, ok := p.s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: v.spec.Name}]; ok && a.Round < p.round {
			between = true
		}
		between = between || v.newest().Live() && v.stale(v.newest())
	}
	return between
}

// restartAllCondition is the condition of pods that have such a rule; nil for
// others.
func (p *planner) restartAllCondition(phase v1.PodPhase) *v1.PodCondition {
	if p.s.Node.NoRestartRules || p.s.Node.NoRestartAll || !p.mayRestartAll() {
		return nil
	}
	c := &v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case phase == v1.PodSucceeded:
		c.Reason = "PodCompleted"
	case phase == v1.PodFailed:
		c.Reason = "PodFailed"
	case p.end == nil && p.restartingAll():
		c.Status, c.Reason, c.Message = v1.ConditionTrue, "RestartAllContainersStarted", "container exited with restart policy rule"
	}
	return c
}

// mayRestartAll says whether a container has a rule that restarts all of them; a debug
// container cannot have one.
func (p *planner) mayRestartAll() bool { return p.rulesForAll.ask(p.haveRulesForAll) }

func (p *planner) haveRulesForAll() bool {
	for _, v := range p.views {
		for _, r := range v.spec.RestartPolicyRules {
			if r.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// endedByRound says whether the container was ended by a restart of all
// containers rather than by itself: all of an earlier round but the one that
// caused it.
func (p *planner) endedByRound(c *podstate.Container) bool {
	v := p.viewOf(c.Name)
	return v != nil && v.stale(c) && !p.asksForAll(v, c)
}
