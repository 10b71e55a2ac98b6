package plan

import (
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// run plans for a pod that is to run.
func (p *planner) run() {
	p.killUnwanted()
	if !p.anythingLeft() {
		p.end = &end{phase: p.lastPhase()}
		return
	}
	p.stopSandboxes()
	if p.betweenRounds() {
		return
	}
	p.resize()
	if p.putOff() {
		return
	}
	due := p.due()
	if len(due) > 0 || p.anyContainerRuns() {
		p.setUpVolumes()
	}
	if len(due) > 0 {
		p.prepare(due)
		p.start(due)
	}
	p.collectGarbage()
}

// starting says whether the container belongs to a start that is not over.
func (s *State) starting(c *podstate.Container) bool {
	a, ok := s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: c.Name}]
	return ok && a.Attempt == c.RestartCount && a.SandboxID == c.SandboxID
}

func (p *planner) liveIn(sandbox string) bool {
	for i := range p.s.Observed.Containers {
		if c := &p.s.Observed.Containers[i]; c.SandboxID == sandbox && c.Live() {
			return true
		}
	}
	return false
}

func (p *planner) anyContainerRuns() bool {
	for i := range p.s.Observed.Containers {
		if p.s.Observed.Containers[i].State == podstate.StateRunning {
			return true
		}
	}
	return false
}

// anythingLeft says whether a container runs, starts or will start again; then
// the pod has not come to its end.
func (p *planner) anythingLeft() bool {
	if p.anyRunning(podstate.StartContainer, podstate.KillContainer, podstate.MakeSandbox) {
		return true
	}
	failed := p.initFailed()
	for _, v := range p.views {
		switch v.class {
		case ordinaryInit:
			if v.newest().Live() {
				return true
			}
		case regular:
			if v.newest().Live() {
				return true
			}
			if !failed && p.wanted(v) {
				return true
			}
		}
	}
	return false
}

// initFailed says whether an init container has failed for good.
func (p *planner) initFailed() bool {
	for _, v := range p.views {
		if p.failedForGood(v) {
			return true
		}
	}
	return false
}
