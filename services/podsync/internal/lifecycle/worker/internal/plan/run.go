package plan

import (
	"fmt"
	"time"

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
	case c.State == podstate.StateUnknown:
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

// starting says whether the container belongs to a start that is not over.
func (s *State) starting(c *podstate.Container) bool {
	a, ok := s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: c.Name}]
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
		if v.class == ordinaryInit && v.newest().Ended() && v.newest().ExitCode != 0 && !p.restarts(v, v.newest()) && !p.initDone() {
			return true
		}
	}
	return false
}

// prepare does beforehand all else that the containers to start need.
func (p *planner) prepare(due []*view) {
	if p.sandbox == nil {
		p.makeSandbox()
	}
	p.pullVolumes()
	for _, v := range p.views {
		if due := isDue(due, v); due || p.first(v) {
			p.pull(v, !due)
		}
	}
}

// first says whether the container will start for the first time later on, so
// that its image can be pulled while others run.
func (p *planner) first(v *view) bool {
	return v.newest() == nil && v.class != ephemeral
}

func isDue(due []*view, v *view) bool {
	for _, d := range due {
		if d == v {
			return true
		}
	}
	return false
}

// pull asks for the container's image unless it is there for the coming start; early
// says that the container is not due yet.
func (p *planner) pull(v *view, early bool) {
	if !p.imageReady(v) {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.PullImage, Object: v.spec.Name}, Container: v.spec.Name, Image: v.spec.Image, Attempt: v.nextCount(p.s), Early: early})
	}
}

func (p *planner) imageReady(v *view) bool {
	img := p.s.Images[v.spec.Name]
	return img.Ref != "" && img.Spec == v.spec.Image && img.RestartCount == v.nextCount(p.s)
}

// makeSandbox asks for a new sandbox once the old one is out of the way.
func (p *planner) makeSandbox() {
	if p.anyRunning(podstate.StopSandbox) {
		return
	}
	for i := range p.s.Observed.Sandboxes {
		if sb := &p.s.Observed.Sandboxes[i]; !p.down(sb) || p.liveIn(sb.ID) {
			return
		}
	}
	if !p.s.Pod.Spec.HostNetwork && !p.s.Node.NetworkReady {
		p.wait("network", "", "network is not ready: container runtime network not ready: NetworkReady=false "+p.s.Node.NetworkMessage, "install or mend the CNI configuration of the runtime", p.out.Wake)
		return
	}
	p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}, Attempt: nextAttempt(p.s), PodStarted: p.podStarted()})
}

// start starts the due containers for which all is ready.
func (p *planner) start(due []*view) {
	if p.sandbox == nil || !p.s.Volumes.ready(p.s.Pod) || p.s.Resize.Unfinished && !p.s.Resize.Raised {
		return
	}
	for _, v := range due {
		if v.class == regular && (p.startsBefore(v) || hasPostStart(v) && p.startsAfter(v)) {
			return // one after the other: the next waits for this one's postStart
		}
		if v.class == ephemeral && !p.volumesTried() {
			continue
		}
		if !p.imageReady(v) || !p.volumeImagesReady(v.spec) {
			if v.class == regular && !p.pullFailed(v) {
				return // regular containers start in the spec's order
			}
			continue
		}
		if p.awaitsAddress(v) {
			continue // it alone
		}
		_, backoff := p.restartTime(v)
		p.emit(podstate.Action{
			Key: podstate.Key{Kind: podstate.StartContainer, Object: v.spec.Name}, Container: v.spec.Name, SandboxID: p.sandbox.ID,
			Attempt: v.nextCount(p.s), ImageRef: p.s.Images[v.spec.Name].Ref, Backoff: backoff, Round: p.round,
			VolumeRefs: p.volumeRefs(v.spec), SandboxUntil: p.sandboxUntil(v),
		})
	}
}

// startsBefore says whether the start of a regular container that stands before
// this one runs or begins now. One that runs already, and whose postStart hook
// does, is still starting.
func (p *planner) startsBefore(v *view) bool {
	for _, before := range p.views {
		if before == v {
			return false
		}
		if before.class == regular && p.mayStillStart(before) {
			return true
		}
	}
	return false
}

// startsAfter says whether a regular container that stands after this one is on
// its way, and does not run yet: this one has failed before, and the other's
// start would come in the middle of this one's postStart hook.
func (p *planner) startsAfter(v *view) bool {
	after := false
	for _, other := range p.views {
		if other == v {
			after = true
			continue
		}
		if a, ok := p.s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: other.spec.Name}]; after && ok && other.class == regular && !p.cameToRun(a) {
			return true
		}
	}
	return false
}

// cameToRun says whether the container of a start is seen to run, or to have run.
func (p *planner) cameToRun(a podstate.Action) bool {
	for i := range p.s.Observed.Containers {
		c := &p.s.Observed.Containers[i]
		if c.Name == a.Container && c.RestartCount == a.Attempt && c.SandboxID == a.SandboxID {
			return c.Ran()
		}
	}
	return false
}

func hasPostStart(v *view) bool {
	return v.spec.Lifecycle != nil && v.spec.Lifecycle.PostStart != nil
}

// pullFailed says whether an image of the container was looked for when it was due,
// and cannot be had.
func (p *planner) pullFailed(v *view) bool {
	_, f, failed := p.pullFailure(v.spec)
	return failed && !f.Early
}

// mayStillStart says whether the container's start runs or begins now.
func (p *planner) mayStillStart(v *view) bool {
	if p.running(podstate.StartContainer, v.spec.Name) {
		return true
	}
	for _, a := range p.out.Actions {
		if a.Kind == podstate.StartContainer && a.Container == v.spec.Name {
			return true
		}
	}
	return false
}
