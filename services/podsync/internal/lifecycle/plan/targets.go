package plan

import v1 "k8s.io/api/core/v1"

// targets lists the probes that should run.
func (p *planner) targets() {
	if p.s.Pod == nil || terminal(p.out.Status.Phase) || p.out.Stopped {
		return
	}
	for _, v := range p.views {
		c := v.last
		if c == nil || c.State != StateRunning || c.Hook == HookRunning || v.class == ordinaryInit || v.class == ephemeral {
			continue
		}
		started := p.started(v)
		add := func(t ProbeType, probe *v1.Probe) {
			if probe != nil {
				p.out.Targets = append(p.out.Targets, Target{ProbeKey: ProbeKey{v.spec.Name, t}, ContainerID: c.ID, StartedAt: c.StartedAt, Started: started, PodIP: p.probedAt(c)})
			}
		}
		if p.end == nil || v.class == sidecar {
			add(Startup, v.spec.StartupProbe)
			add(Liveness, v.spec.LivenessProbe)
		}
		add(Readiness, v.spec.ReadinessProbe)
		if !p.ready(v) && p.end == nil {
			p.waitProbe(v)
		}
	}
}

// probedAt is the address at which a container is probed: the pod's, or, where the
// status has none because the container's sandbox is down, that which it had.
func (p *planner) probedAt(c *Container) string {
	if ip := p.out.Status.PodIP; ip != "" {
		return ip
	}
	for i := range p.s.Observed.Sandboxes {
		if sb := &p.s.Observed.Sandboxes[i]; sb.ID == c.SandboxID {
			if ips := OneOfEach(sb.IPs, p.s.Node.IPs); len(ips) > 0 {
				return ips[0]
			}
		}
	}
	return ""
}
