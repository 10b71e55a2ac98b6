package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// objectOf is what an action is about, in a person's words.
func (p *planner) objectOf(a podstate.Action) string {
	switch a.Kind {
	case podstate.PullImage:
		if v := p.viewOf(a.Container); v != nil {
			return v.spec.Image
		}
		return a.Container
	case podstate.StartContainer, podstate.BeginStop, podstate.KillContainer, podstate.RemoveContainer:
		return a.Container
	default:
		return "" // a CRI id says nothing to a person
	}
}

// underWay says of the actions that run or begin now that the pod waits for
// them, and of what else it waits for that is nobody's action.
func (p *planner) underWay() {
	var actions []podstate.Action
	for _, a := range p.s.InFlight {
		actions = append(actions, a)
	}
	for _, a := range p.out.Actions {
		if _, running := p.s.InFlight[a.Key]; !running {
			actions = append(actions, a)
		}
	}
	slices.SortFunc(actions, func(a, b podstate.Action) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object))
	})
	for _, a := range actions {
		if a.Kind == podstate.SetupVolumes {
			p.settingUp(a)
			continue
		}
		reason, todo := p.doing(a)
		if f, failed := p.s.Failures[a.Key]; failed && reason != "" {
			reason, todo = again(reason, f), advice(a.Kind, f)
		}
		if reason != "" {
			p.waitFor(a, p.objectOf(a), reason, todo)
		}
	}
	if p.end == nil && p.s.Pod != nil {
		p.waitInit()
		p.waitOthers()
		p.waitGates()
	}
}

// since carries over since when the pod waits for each thing.
func (p *planner) since() {
	of := podutil.NewIndex(p.s.Waits, func(w *podstate.Wait) waited { return waited{w.Kind, w.Object} })
	for i := range p.out.Waits {
		w := &p.out.Waits[i]
		w.Since = p.s.Now
		if old := of.Find(waited{w.Kind, w.Object}); old != nil {
			w.Since = old.Since
		}
	}
}

// waited is what of a wait stays the same.
type waited struct{ kind, object string }

// waitFor says that the pod waits for an action.
func (p *planner) waitFor(a podstate.Action, object, reason, advice string) {
	p.out.Waits = append(p.out.Waits, podstate.Wait{Kind: p.kindOf(a), Object: object, Action: a.Key, Reason: reason, Advice: advice})
}

// again is what is done once more after a failure.
func again(what string, f Failure) string {
	return fmt.Sprintf("%s (try %d); the last try failed: %s", what, f.Count+1, f.Message)
}

// kindOf is the class of a running action: a container that is killed to start
// again is not the pod's termination.
func (p *planner) kindOf(a podstate.Action) string {
	if (a.Kind == podstate.BeginStop || a.Kind == podstate.KillContainer) && p.end == nil {
		return "container"
	}
	return waitKind(a.Kind)
}

// doing says what an action does, and what to do when it takes long. Empty for
// what nobody waits for: tidying up behind a pod that runs.
func (p *planner) doing(a podstate.Action) (reason, advice string) {
	switch a.Kind {
	case podstate.PullImage:
		return "the image is looked for, and pulled if need be, for container " + a.Container,
			"a large image or a slow registry takes its time; if it never ends, look at the registry and the runtime's log"
	case podstate.SetupVolumes:
		return "the volumes are being set up", "if it does not end, look at what is behind the volume: the node's mounts and the server or disk that has to answer, or who attaches it and its CSI driver on this node"
	case podstate.MakeSandbox:
		return "the pod's directories, its sandbox and its network are being made", "if it does not end, look at the runtime's log, at the CNI plugin, and whether the node's disk answers"
	case podstate.StartContainer:
		return "the container is being made and started", "if it does not end, look at the runtime's log and at the container's postStart hook"
	case podstate.BeginStop, podstate.KillContainer:
		if p.end == nil {
			return a.Reason, "it starts again after that; polylet logs --previous shows its last words"
		}
		return fmt.Sprintf("the container was asked to end and has %d s for it", a.GraceTotalSeconds),
			"a container that does not end is killed when the period is over; one that is there even then may wait in the kernel: look whether the servers of its volumes answer"
	}
	switch {
	case a.Kind == podstate.KeepStop:
		return "that the node ends the pod is being written down, so that a crash does not lose it", diskAdvice
	case a.Kind == podstate.KeepStatus:
		return "how the pod has ended is being written down, so that the runtime may forget it", diskAdvice
	case a.Kind == podstate.KeepAllocation:
		return "what the pod is allocated is being written down, so that a crash does not lose it", diskAdvice
	case p.end == nil && a.Kind == podstate.StopSandbox && p.sandbox == nil:
		return "the sandbox before is stopped and its network taken down; then a new one is made", stopSandboxAdvice
	case p.end == nil:
		return resizing(a)
	}
	switch a.Kind {
	case podstate.StopSandbox:
		return "the sandbox is stopped and its network taken down", stopSandboxAdvice
	case podstate.TeardownVolumes:
		return "the volumes are being unmounted", "if it does not end, look whether the drivers and servers behind them answer, then who keeps a mount busy: findmnt, fuser -m"
	case podstate.RemoveCgroup:
		return "the pod's cgroup is being removed", "if it does not end, a process of the pod is still there: look into its cgroup.procs"
	case podstate.RemoveContainer, podstate.RemoveSandbox:
		return "the runtime removes what has ended", "if it does not end, look at the runtime's log"
	case podstate.RemoveDirectories:
		return "the pod's directory and its logs are being removed", diskAdvice
	case podstate.DeleteObject:
		return "the apiserver has to take the final status, then the pod's object is deleted", "if it does not end, look at the connection to the apiserver"
	}
	return "", ""
}

// resizing says what an action of a resize does; empty for other actions.
func resizing(a podstate.Action) (reason, advice string) {
	const advised = "if it does not end, look at the runtime's log and at the pod's cgroup"
	switch a.Kind {
	case podstate.RaiseCgroup:
		return "the pod's cgroup grows to what the pod is allocated, and what is to start waits for that", advised
	case podstate.ResizeContainer:
		return "container " + a.Container + " is given what it is allocated", advised
	case podstate.FitCgroup:
		return "the pod's cgroup shrinks to what the pod is allocated", advised
	}
	return "", ""
}

const diskAdvice = "if it does not end, the node's disk does not answer: look at dmesg"

const stopSandboxAdvice = "if it does not end, look at the runtime's log and at the CNI plugin"

// waitForStop says that the node ends the pod, and why.
func (p *planner) waitForStop() {
	if s := p.s.Stop; s != nil {
		p.wait("termination", "", "the node ends the pod for a reason of its own, "+s.Reason+": "+s.Message,
			"it does not come back here; what has made it starts another one where there is room", time.Time{})
	}
}

// waitForEnd is for a pod that is ending while nobody stops anything: sidecars
// that others rely on, or a start that is being cut short.
func (p *planner) waitForEnd() {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if c.Live() && p.needed(c) {
			p.wait("termination", c.Name, "the sidecar "+c.Name+" goes on until the containers before it have ended", "", time.Time{})
		}
	}
	for _, k := range []podstate.Kind{podstate.StartContainer, podstate.MakeSandbox} {
		if p.anyRunning(k) {
			p.wait("termination", "", "the end waits until it is over: "+string(k), "if it does not end, look at the runtime's log", time.Time{})
		}
	}
}

// waitBackoff is for a container that ended and may start again only later.
func (p *planner) waitBackoff(v *view, at time.Time) {
	c := v.shown()
	reason := fmt.Sprintf("container %s ended with exit code %d", v.spec.Name, c.ExitCode)
	if v.class == ordinaryInit {
		reason = "init " + reason
	}
	if c.Reason != "" {
		reason += " (" + c.Reason + ")"
	}
	if c.Message != "" {
		reason += ": " + c.Message
	}
	switch {
	case c.RestartCount == 1:
		reason += "; it was restarted once"
	case c.RestartCount > 1:
		reason += fmt.Sprintf("; it was restarted %d times", c.RestartCount)
	}
	why, todo := p.killedBecause(c)
	p.wait("backoff", v.spec.Name, reason+why+"; it waits before it starts again", cmp.Or(todo, exitAdvice(c)), at)
}

// killedBecause says why podsync has ended the container, when that is what to look at:
// how it exits then says nothing. It is empty when the container has ended by itself.
func (p *planner) killedBecause(c *podstate.Container) (why, advice string) {
	switch cause, ours := p.stopCause(c); {
	case ours && cause == podstate.CauseHook:
		return "; it was ended because its postStart hook failed", "check the container's postStart hook"
	case !ours || cause != podstate.CauseProbe:
		return "", ""
	case p.failed(c, podstate.Startup):
		return "; it was ended because its startup probe failed", "check what the container answers to its startup probe, or let that fail more often (failureThreshold): polylet probes shows each probe; polylet logs --previous shows the container's last words"
	}
	return "; it was ended because its liveness probe failed", "check what the container answers to its liveness probe, or give it more time (a startupProbe, timeoutSeconds, failureThreshold): polylet probes shows each probe; polylet logs --previous shows the container's last words"
}

// exitAdvice says what to do about how a container ended.
func exitAdvice(c *podstate.Container) string {
	switch {
	case c.Reason == reasonOOMKilled:
		return "it used more memory than its limit: raise resources.limits.memory or find what it needs it for"
	case c.Reason == "StartError" || c.Reason == "ContainerCannotRun":
		return "it never ran, so there are no last words: " + startAdvice(Failure{Message: strings.ToLower(c.Message)})
	case c.ExitCode == 0:
		return "it ends by itself: a container of a pod with restartPolicy Always should keep running"
	case c.ExitCode == 126 || c.ExitCode == 127:
		return "the command cannot be run or was not found in the image: check command and args"
	case c.ExitCode == 137:
		return "it was killed: look for a failing liveness probe in the timeline, and for memory"
	default:
		return "polylet logs --previous shows its last words"
	}
}

// waitProbe is for a container that runs and is not ready.
func (p *planner) waitProbe(v *view) {
	for _, t := range []podstate.ProbeType{podstate.Startup, podstate.Readiness} {
		if r, ok := p.s.Probes[podstate.ProbeKey{Container: v.spec.Name, Type: t}]; ok && v.newest() != nil && r.ContainerID == v.newest().ID && !r.Success && r.Message != "" {
			p.wait("probe", v.spec.Name, fmt.Sprintf("the %s probe fails: %s", t, r.Message), probeAdvice, time.Time{})
			return
		}
	}
	t, probe := podstate.Startup, v.spec.StartupProbe
	if probe == nil || p.started(v) {
		t, probe = podstate.Readiness, v.spec.ReadinessProbe
	}
	if probe == nil {
		p.wait("probe", v.spec.Name, "the container is not ready yet", probeAdvice, time.Time{})
		return
	}
	advice := probeAdvice
	if port := unnamed(v.spec, probe); port != "" {
		advice = fmt.Sprintf("mend the probe's port, or name one of the container's ports so: none is called %q, and the probe cannot be run", port)
	}
	p.wait("probe", v.spec.Name, fmt.Sprintf("the %s probe (%s) has not succeeded yet", t, handlerOf(probe)), advice, time.Time{})
}

// unnamed is the name of the port that a probe goes to, when the container has none of
// that name; "" when it has, or when the port is a number.
func unnamed(c *v1.Container, probe *v1.Probe) string {
	var port intstr.IntOrString
	switch h := probe.ProbeHandler; {
	case h.HTTPGet != nil:
		port = h.HTTPGet.Port
	case h.TCPSocket != nil:
		port = h.TCPSocket.Port
	}
	if port.Type != intstr.String || slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.Name == port.StrVal }) {
		return ""
	}
	if _, err := strconv.Atoi(port.StrVal); err == nil {
		return ""
	}
	return port.StrVal
}

const probeAdvice = "check what the container answers to its probe; polylet probes shows each probe and its last attempt, if none polylet status whether the probes process runs"

// handlerOf says in few words what a probe does. Arguments of commands, headers and
// queries may be secret and are left out.
func handlerOf(probe *v1.Probe) string {
	switch h := probe.ProbeHandler; {
	case h.HTTPGet != nil:
		path, _, _ := strings.Cut(h.HTTPGet.Path, "?")
		return fmt.Sprintf("HTTP GET %s on port %s", path, h.HTTPGet.Port.String())
	case h.TCPSocket != nil:
		return "TCP port " + h.TCPSocket.Port.String()
	case h.GRPC != nil:
		return fmt.Sprintf("gRPC health on port %d", h.GRPC.Port)
	case h.Exec != nil && len(h.Exec.Command) > 0:
		return "exec " + h.Exec.Command[0]
	default:
		return "exec"
	}
}

// waitInit is for a pod whose init containers have not done their part.
func (p *planner) waitInit() {
	if p.sandbox == nil || p.initDone() {
		return
	}
	for _, v := range p.views {
		if v.class == ordinaryInit && v.here().Live() {
			p.wait("container", v.spec.Name, "init container "+v.spec.Name+" runs; what comes after it starts when it has ended with exit code 0",
				"if it does not end, polylet logs shows what it does", time.Time{})
			return
		}
	}
}

// waitOthers is for a pod of which a container has ended for good while others run: it
// has not ended, and is not Ready either. The first that has ended is named.
func (p *planner) waitOthers() {
	var ended *view
	var running []string
	for _, v := range p.views {
		switch c := v.newest(); {
		case v.class != regular:
		case c.Live():
			running = append(running, v.spec.Name)
		case ended == nil && c.Ended() && !p.restarts(v, c):
			ended = v
		}
	}
	if ended == nil || len(running) == 0 {
		return
	}
	others := running[0] + " has ended"
	if n := len(running) - 1; n > 0 {
		others += fmt.Sprintf(", and %d more", n)
	}
	advice := "look what still runs does (polylet logs); if it only serves the others, make it a sidecar, an init container with restartPolicy Always, which ends with them"
	c := ended.newest()
	if c.ExitCode != 0 {
		advice = exitAdvice(c) + "; to have it started again, mend its restartPolicy or the pod's"
	}
	p.wait("container", ended.spec.Name, fmt.Sprintf("container %s has ended with exit code %d, and its policy starts it no more; the pod is not Ready since then, and ends when %s",
		ended.spec.Name, c.ExitCode, others), advice, time.Time{})
}

// waitGates is for a pod whose containers are ready and which is not.
func (p *planner) waitGates() {
	if c := podutil.Condition(p.out.Status.Conditions, v1.PodReady); c != nil && c.Status != v1.ConditionTrue && c.Reason == "ReadinessGatesNotReady" {
		p.wait("gate", "", c.Message, "the controller that owns the readiness gate has to set its condition", time.Time{})
	}
}
