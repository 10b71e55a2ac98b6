package probestore

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/env"
)

// resolve makes a target whole from the pod's spec: ports by number, commands
// with the container's literal environment. c is its container, nil when the spec has
// none. Not ok when the spec has no such probe.
func resolve(pod *v1.Pod, c *v1.Container, t podstate.Target) (Target, bool) {
	if c == nil {
		return Target{}, false
	}
	spec := map[podstate.ProbeType]*v1.Probe{podstate.Liveness: c.LivenessProbe, podstate.Readiness: c.ReadinessProbe, podstate.Startup: c.StartupProbe}[t.Type]
	if spec == nil {
		return Target{}, false
	}
	full := Target{
		Key: Key{UID: pod.UID, ProbeKey: t.ProbeKey}, Namespace: pod.Namespace, Name: pod.Name,
		ContainerID: t.ContainerID, StartedAt: t.StartedAt, Started: t.Started, PodIP: t.PodIP,
		Probe: spec.DeepCopy(),
	}
	switch p := full.Probe; {
	case p.Exec != nil:
		// One that is too large is not run: no program can be started with it.
		p.Exec.Command, _ = env.ExpandAll(p.Exec.Command, literals(c))
	case p.HTTPGet != nil:
		full.PortName = number(&p.HTTPGet.Port, c)
	case p.TCPSocket != nil:
		full.PortName = number(&p.TCPSocket.Port, c)
	}
	return full, true
}

// number puts the number of a named port in its place, 0 when the container
// has no port of that name, and returns the name.
func number(port *intstr.IntOrString, c *v1.Container) string {
	if port.Type == intstr.Int {
		return ""
	}
	name := port.StrVal
	*port = intstr.FromInt32(0)
	for _, p := range c.Ports {
		if p.Name == name {
			*port = intstr.FromInt32(p.ContainerPort)
		}
	}
	return name
}

// literals are the environment variables as the spec has them: one whose value comes from
// elsewhere is empty, as it is for a kubelet's probes.
func literals(c *v1.Container) map[string]string {
	vars := map[string]string{}
	for _, e := range c.Env {
		vars[e.Name] = e.Value
	}
	return vars
}
