package plan

import (
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// collectGarbage removes dead containers beyond the newest ended ones of each
// name, and sandboxes that nothing refers to any more.
// Source: https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-garbage-collection
func (p *planner) collectGarbage() {
	keep := p.kept()
	used := map[string]bool{}
	for _, a := range p.s.InFlight {
		used[a.SandboxID] = true // what a start made in it may not have been seen yet
	}
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		used[c.SandboxID] = true
		if keep[c.ID] || c.State != podstate.StateExited {
			continue
		}
		if old := c.FinishedAt.Add(p.s.Node.DeadContainerTTL); p.s.Node.DeadContainerTTL > 0 && p.s.Now.Before(old) && !p.s.Reclaim {
			p.wake(old)
			continue
		}
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: c.ID}, ID: c.ID, Container: c.Name})
	}
	for i := 1; i < len(p.s.Observed.Sandboxes); i++ {
		if sb := &p.s.Observed.Sandboxes[i]; p.down(sb) && !used[sb.ID] && !p.running(podstate.StopSandbox, sb.ID) {
			p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveSandbox, Object: sb.ID}, ID: sb.ID})
		}
	}
}

// kept are the containers that stay: those that the status and the next
// decision are made from, and as many of the newest dead ones of a name as the
// node wants to keep. Of one too many on the node the reported status remembers
// how it ended, so it may go though it is the last state of another.
func (p *planner) kept() map[string]bool {
	keep := map[string]bool{}
	for _, v := range p.views {
		for _, c := range []*podstate.Container{v.here(), v.newest(), v.shown()} {
			if c != nil {
				keep[c.ID] = true
			}
		}
		if c := v.before(); c != nil && !p.s.Excess[c.ID] {
			keep[c.ID] = true
		}
	}
	most := p.s.Node.DeadContainers
	if p.s.Reclaim {
		most = 0
	}
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		v := p.viewOf(c.Name)
		if v == nil || c.State != podstate.StateExited || p.s.Excess[c.ID] {
			continue
		}
		if v.dead++; v.dead <= most || most < 0 {
			keep[c.ID] = true
		}
	}
	return keep
}

// mayForget says whether the runtime need not remember the pod, which has ended and is no
// static one: the next podsync is given its last status by the apiserver, or else by the
// disk, which it asks for. A disk that cannot keep it may be full of what the pod has left:
// of one that does not start again by itself, as the node ends it or its object goes, that
// goes nevertheless.
func (p *planner) mayForget() bool {
	switch {
	case !p.settled():
		return false
	case p.s.StatusKept || podutil.TerminalPhase(p.s.Pod.Status.Phase):
		return true
	}
	last := p.lastTold()
	keep := podstate.Key{Kind: podstate.KeepStatus}
	p.emit(podstate.Action{Key: keep, Status: &last})
	_, failed := p.s.Failures[keep]
	return failed && (p.s.Stop != nil || p.s.Pod.DeletionTimestamp != nil)
}

// removeDead removes the containers of a pod that has ended, and then its sandboxes
// when they are down.
func (p *planner) removeDead(down bool) {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if !p.running(podstate.KillContainer, c.ID) {
			p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: c.ID}, ID: c.ID, Container: c.Name})
		}
	}
	if !down || len(p.s.Observed.Containers) > 0 {
		return
	}
	for i := range p.s.Observed.Sandboxes {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveSandbox, Object: p.s.Observed.Sandboxes[i].ID}, ID: p.s.Observed.Sandboxes[i].ID})
	}
}
