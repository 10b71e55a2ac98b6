package plan

import (
	"fmt"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// killUnwanted stops running containers that should not go on as they are.
func (p *planner) killUnwanted() {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if p.s.starting(c) {
			p.watchHook(c)
			continue
		}
		if !c.Live() {
			continue
		}
		v := p.viewOf(c.Name)
		if v == nil {
			p.kill(c, kill{"Container " + c.Name + " is not in the pod's spec any more", p.specGrace(), podstate.CauseEnd})
			continue
		}
		if k := p.unwanted(v, c); k.reason != "" {
			p.kill(c, k)
		}
	}
}

// kill is why and how a running container is stopped.
type kill struct {
	// reason is for people; empty when the container may stay.
	reason string
	// grace is its grace period in seconds.
	grace int64
	cause podstate.Cause
}

// unwanted says why a running container is to be killed.
func (p *planner) unwanted(v *view, c *podstate.Container) kill {
	grace := p.specGrace()
	switch {
	case v.stale(c):
		return kill{fmt.Sprintf("Container %s is restarted with all containers of the pod", c.Name), 0, podstate.CauseRound}
	case p.sandbox == nil || c.SandboxID != p.sandbox.ID:
		return kill{"Stopping container " + c.Name, grace, podstate.CauseSandbox}
	case c.State == podstate.StateUnknown && v.class != ephemeral:
		return kill{v.kind() + ` is in "unknown" state, try killing it before restart`, grace, podstate.CauseUnknown}
	case c.ImageChanged(v.spec) && (v.class == regular || v.class == sidecar):
		// An init container at work is left to end it.
		return kill{p.killText(v, "definition changed", podstate.CauseDefinition), grace, podstate.CauseDefinition}
	case c.Hook == podstate.HookFailed:
		return kill{"FailedPostStartHook", grace, podstate.CauseHook}
	case p.restartsForResize(v, c):
		return kill{fmt.Sprintf("Container %s resize requires restart", c.Name), grace, podstate.CauseResize}
	case p.failed(c, podstate.Startup):
		return kill{p.killText(v, "failed startup probe", podstate.CauseProbe), p.probeGrace(v.spec.StartupProbe), podstate.CauseProbe}
	case p.failed(c, podstate.Liveness):
		return kill{p.killText(v, "failed liveness probe", podstate.CauseProbe), p.probeGrace(v.spec.LivenessProbe), podstate.CauseProbe}
	}
	if stop, begun := p.s.Stops[c.ID]; begun {
		// Its hook has run, or its signal is out: that is not taken back, though
		// an image or a resize may be.
		return kill{p.killText(v, "is being stopped", stop.Cause), stop.GraceSeconds, stop.Cause}
	}
	return kill{}
}

// kind is what an event calls the container.
func (v *view) kind() string {
	if v.class == ordinaryInit || v.class == sidecar {
		return "Init container"
	}
	return "Container"
}

// killText is a kill's reason, with what follows. That a sidecar starts again
// goes without saying.
func (p *planner) killText(v *view, why string, cause podstate.Cause) string {
	text := fmt.Sprintf("%s %s %s", v.kind(), v.spec.Name, why)
	if v.class != sidecar && p.restartsAfter(v, cause) {
		text += ", will be restarted"
	}
	return text
}

// watchHook cuts short the start of a container whose postStart hook still runs
// though it has become pointless. A hook has no time limit: the container, the
// pod or its definition ends it.
func (p *planner) watchHook(c *podstate.Container) {
	if c.Hook != podstate.HookRunning {
		return
	}
	v := p.viewOf(c.Name)
	if v == nil || c.State == podstate.StateExited || c.Live() && p.unwanted(v, c).reason != "" {
		p.out.Cancel = append(p.out.Cancel, podstate.Key{Kind: podstate.StartContainer, Object: c.Name})
		return
	}
	if c.State == podstate.StateRunning {
		p.wait("container", c.Name, "the postStart hook of container "+c.Name+" has not returned", "a hook has no time limit; look into the container why it hangs", time.Time{})
	}
}

func (p *planner) failed(c *podstate.Container, t podstate.ProbeType) bool {
	r, ok := p.s.Probes[podstate.ProbeKey{Container: c.Name, Type: t}]
	return ok && r.ContainerID == c.ID && !r.Success
}
