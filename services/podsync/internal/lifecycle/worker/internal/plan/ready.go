package plan

import (
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// started says whether the container has started in the startup probe's sense.
func (p *planner) started(v *view) bool {
	c := v.newest()
	if c == nil || c.State != podstate.StateRunning || c.Hook == podstate.HookRunning {
		return false
	}
	if r, ok := p.s.Probes[podstate.ProbeKey{Container: v.spec.Name, Type: podstate.Startup}]; ok && r.ContainerID == c.ID {
		return r.Success
	}
	if r := v.told; r != nil && podutil.BareID(r.ContainerID) == c.ID && r.Started != nil && *r.Started {
		return true
	}
	return v.spec.StartupProbe == nil
}

// ready says whether the container counts as ready.
func (p *planner) ready(v *view) bool {
	c := v.newest()
	if c == nil {
		return false
	}
	if v.class == ordinaryInit {
		return didItsWork(c) && !v.stale(c)
	}
	if v.class == ephemeral || c.State != podstate.StateRunning || !p.started(v) {
		return false
	}
	if v.spec.ReadinessProbe == nil {
		return true
	}
	if r, ok := p.s.Probes[podstate.ProbeKey{Container: v.spec.Name, Type: podstate.Readiness}]; ok && r.ContainerID == c.ID {
		return r.Success
	}
	// Nothing was heard since this process started: what was reported for the
	// same container still holds.
	if r := v.told; r != nil && podutil.BareID(r.ContainerID) == c.ID {
		return r.Ready
	}
	return false
}
