package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// targets lists the probes that should run.
func (p *planner) targets() {
	if p.s.Pod == nil || podutil.TerminalPhase(p.out.Status.Phase) || p.out.Stopped {
		return
	}
	for _, v := range p.views {
		c := v.newest()
		if c == nil || c.State != podstate.StateRunning || c.Hook == podstate.HookRunning || v.class == ordinaryInit || v.class == ephemeral {
			continue
		}
		started := p.started(v)
		add := func(t podstate.ProbeType, probe *v1.Probe) {
			if probe != nil {
				p.out.Targets = append(p.out.Targets, podstate.Target{ProbeKey: podstate.ProbeKey{Container: v.spec.Name, Type: t}, ContainerID: c.ID, StartedAt: c.StartedAt, Started: started, PodIP: p.probedAt(c)})
			}
		}
		if p.end == nil || v.class == sidecar {
			add(podstate.Startup, v.spec.StartupProbe)
			add(podstate.Liveness, v.spec.LivenessProbe)
		}
		add(podstate.Readiness, v.spec.ReadinessProbe)
		if !p.ready(v) && p.end == nil {
			p.waitProbe(v)
		}
	}
}

// probedAt is the address at which a container is probed: the pod's, or, where the
// status has none because the container's sandbox is down, that which it had.
func (p *planner) probedAt(c *podstate.Container) string {
	if ip := p.out.Status.PodIP; ip != "" {
		return ip
	}
	if sb := p.s.Observed.Sandbox(c.SandboxID); sb != nil {
		if ips := p.shownIPs(sb.IPs); len(ips) > 0 {
			return ips[0]
		}
	}
	return ""
}
