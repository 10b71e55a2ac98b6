package plan

import (
	"fmt"
	"time"
)

// run plans for a pod that is to run.
func (p *planner) run() {
	p.killUnwanted()
	if !p.anythingLeft() {
		p.end = &end{phase: p.lastPhase()}
		return
	}
	if p.betweenRounds() {
		return
	}
	p.resize()
	due := p.due()
	if len(due) > 0 {
		p.prepare(due)
		p.start(due)
	}
	p.collectGarbage()
}

// killUnwanted stops running containers that should not go on as they are.
func (p *planner) killUnwanted() {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if p.starting(c) {
			p.watchHook(c)
			continue
		}
		if !c.live() {
			continue
		}
		v := p.viewOf(c.Name)
		if v == nil {
			p.kill(c, p.specGrace(), "Container "+c.Name+" is not in the pod's spec any more")
			continue
		}
		if reason, grace := p.unwanted(v, c); reason != "" {
			p.kill(c, grace, reason)
		}
	}
	if p.sandbox != nil {
		return
	}
	for i := range p.s.Observed.Sandboxes {
		if sb := &p.s.Observed.Sandboxes[i]; sb.Ready && !p.liveIn(sb.ID) {
			p.emit(Action{Key: Key{StopSandbox, sb.ID}, ID: sb.ID})
		}
	}
}

// unwanted says why a running container is to be killed, with the grace period
// for it; empty when it may stay.
func (p *planner) unwanted(v *view, c *Container) (string, int64) {
	switch {
	case p.stale(v, c):
		return fmt.Sprintf("Container %s is restarted with all containers of the pod", c.Name), 0
	case p.sandbox == nil || c.SandboxID != p.sandbox.ID:
		return "Stopping container " + c.Name, p.specGrace()
	case c.State == StateUnknown:
		return `Container is in "unknown" state, try killing it before restart`, p.specGrace()
	case c.SpecHash != "" && c.SpecHash != Hash(v.spec) && v.class != ephemeral:
		return fmt.Sprintf("Container %s definition changed, will be restarted", c.Name), p.specGrace()
	case c.Hook == HookFailed:
		return "FailedPostStartHook", p.specGrace()
	case p.restartsForResize(v, c):
		return fmt.Sprintf("Container %s resize requires restart", c.Name), p.specGrace()
	}
	if p.failed(c, Startup) {
		return fmt.Sprintf("Container %s failed startup probe%s", c.Name, p.afterKill(v)), p.probeGrace(v.spec.StartupProbe)
	}
	if p.failed(c, Liveness) {
		return fmt.Sprintf("Container %s failed liveness probe%s", c.Name, p.afterKill(v)), p.probeGrace(v.spec.LivenessProbe)
	}
	return "", 0
}

// afterKill says what follows when the container is killed.
func (p *planner) afterKill(v *view) string {
	if p.restarts(v, &Container{Name: v.spec.Name, State: StateExited, ExitCode: 137, Round: p.round}) {
		return ", will be restarted"
	}
	return ""
}

// watchHook cuts short the start of a container whose postStart hook still runs
// though it has become pointless. A hook has no time limit: the container, the
// pod or its definition ends it.
func (p *planner) watchHook(c *Container) {
	if c.Hook != HookRunning {
		return
	}
	v := p.viewOf(c.Name)
	reason := ""
	if v != nil && c.live() {
		reason, _ = p.unwanted(v, c)
	}
	if v == nil || c.State == StateExited || reason != "" {
		p.out.Cancel = append(p.out.Cancel, Key{StartContainer, c.Name})
		return
	}
	if c.State == StateRunning {
		p.wait("container", c.Name, "the postStart hook of container "+c.Name+" has not returned", "a hook has no time limit; look into the container why it hangs", time.Time{})
	}
}

func (p *planner) failed(c *Container, t ProbeType) bool {
	r, ok := p.s.Probes[ProbeKey{c.Name, t}]
	return ok && r.ContainerID == c.ID && !r.Success
}

// starting says whether the container belongs to a start that is not over.
func (p *planner) starting(c *Container) bool {
	a, ok := p.s.InFlight[Key{StartContainer, c.Name}]
	return ok && a.Attempt == c.RestartCount && a.SandboxID == c.SandboxID
}

func (p *planner) viewOf(name string) *view {
	for _, v := range p.views {
		if v.spec.Name == name {
			return v
		}
	}
	return nil
}

func (p *planner) liveIn(sandbox string) bool {
	for i := range p.s.Observed.Containers {
		if c := &p.s.Observed.Containers[i]; c.SandboxID == sandbox && c.live() {
			return true
		}
	}
	return false
}

// anythingLeft says whether a container runs, starts or will start again; then
// the pod has not come to its end.
func (p *planner) anythingLeft() bool {
	if p.anyRunning(StartContainer, KillContainer, MakeSandbox) {
		return true
	}
	failed := p.initFailed()
	for _, v := range p.views {
		switch v.class {
		case ordinaryInit:
			if v.last != nil && v.last.live() {
				return true
			}
		case regular:
			if v.last != nil && v.last.live() {
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
		if v.class == ordinaryInit && v.last != nil && v.last.State == StateExited && v.last.ExitCode != 0 && !p.restarts(v, v.last) && !p.initDone() {
			return true
		}
	}
	return false
}

// prepare does beforehand all that the containers to start need.
func (p *planner) prepare(due []*view) {
	if p.sandbox == nil {
		p.makeSandbox()
	}
	if !p.s.Volumes.Ready && !p.anyRunning(TeardownVolumes) {
		p.emit(Action{Key: Key{Kind: SetupVolumes}})
	}
	p.pullVolumes()
	for _, v := range p.views {
		if isDue(due, v) || p.first(v) {
			p.pull(v)
		}
	}
}

// first says whether the container will start for the first time later on, so
// that its image can be pulled while others run.
func (p *planner) first(v *view) bool {
	return v.last == nil && v.class != ephemeral
}

func isDue(due []*view, v *view) bool {
	for _, d := range due {
		if d == v {
			return true
		}
	}
	return false
}

// pull asks for the container's image unless it is there for the coming start.
func (p *planner) pull(v *view) {
	if !p.imageReady(v) {
		p.emit(Action{Key: Key{PullImage, v.spec.Name}, Container: v.spec.Name, Attempt: v.nextCount(p.s)})
	}
}

func (p *planner) imageReady(v *view) bool {
	img := p.s.Images[v.spec.Name]
	return img.Ref != "" && img.Spec == v.spec.Image && img.RestartCount == v.nextCount(p.s)
}

// makeSandbox asks for a new sandbox once the old one is out of the way.
func (p *planner) makeSandbox() {
	if p.anyRunning(StopSandbox) {
		return
	}
	for i := range p.s.Observed.Sandboxes {
		if sb := &p.s.Observed.Sandboxes[i]; sb.Ready || p.liveIn(sb.ID) {
			return
		}
	}
	if !p.s.Pod.Spec.HostNetwork && !p.s.Node.NetworkReady {
		p.wait("network", "", "network is not ready: container runtime network not ready: NetworkReady=false "+p.s.Node.NetworkMessage, "install or mend the CNI configuration of the runtime", p.out.Wake)
		return
	}
	p.emit(Action{Key: Key{Kind: MakeSandbox}, Attempt: nextAttempt(p.s), PodStarted: p.podStarted()})
}

// start starts the due containers for which all is ready.
func (p *planner) start(due []*view) {
	if p.sandbox == nil || !p.s.Volumes.Ready || p.s.Resize.Unfinished && !p.s.Resize.Raised {
		return
	}
	for _, v := range due {
		if !p.imageReady(v) || !p.volumeImagesReady(v.spec) {
			if v.class == regular && !p.pullFailed(v) {
				return // regular containers start in the spec's order
			}
			continue
		}
		_, backoff := p.restartTime(v)
		p.emit(Action{
			Key: Key{StartContainer, v.spec.Name}, Container: v.spec.Name, SandboxID: p.sandbox.ID,
			Attempt: v.nextCount(p.s), ImageRef: p.s.Images[v.spec.Name].Ref, Backoff: backoff, Round: p.round,
			VolumeRefs: p.volumeRefs(v.spec), SandboxUntil: p.sandboxUntil(v),
		})
		if v.class == regular && p.mayStillStart(v) {
			return // one after the other: the next waits for this one's postStart
		}
	}
}

func (p *planner) pullFailed(v *view) bool {
	_, _, failed := p.pullFailure(v.spec)
	return failed
}

// mayStillStart says whether the container's start runs or begins now.
func (p *planner) mayStillStart(v *view) bool {
	if p.running(StartContainer, v.spec.Name) {
		return true
	}
	for _, a := range p.out.Actions {
		if a.Kind == StartContainer && a.Container == v.spec.Name {
			return true
		}
	}
	return false
}
