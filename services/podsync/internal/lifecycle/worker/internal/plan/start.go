package plan

import (
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

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
	if !p.imageReady(v, early) {
		p.dropPull(v)
		p.emitPull(v, early)
	}
}

// imageCounts is how long what was found of an image counts for a start that all else
// holds up: a volume that is not there, say, until somebody makes what it needs, who may
// have pushed another image meanwhile.
const imageCounts = time.Minute

// pullAnew asks for the image of a container for whose start all else is ready once more
// if it was found long ago, and says whether it does.
func (p *planner) pullAnew(v *view) bool {
	if at := p.s.Images[v.spec.Name].At; at.IsZero() || p.s.Now.Sub(at) <= imageCounts {
		return false
	}
	p.emitPull(v, false)
	return true
}

func (p *planner) emitPull(v *view, early bool) {
	p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.PullImage, Object: v.spec.Name}, Container: v.spec.Name, Image: v.spec.Image, Attempt: v.nextCount(p.s), Early: early})
}

// dropPull ends the pull of an image that the container had before: its registry may not
// answer, which is why another is asked for.
func (p *planner) dropPull(v *view) {
	key := podstate.Key{Kind: podstate.PullImage, Object: v.spec.Name}
	if a, running := p.s.InFlight[key]; running && a.Image != v.spec.Image {
		p.out.Cancel = append(p.out.Cancel, key)
	}
}

// imageReady says whether the image for the coming start was found, and, unless that
// start is still to become due, since it became due.
func (p *planner) imageReady(v *view, early bool) bool {
	img := p.s.Images[v.spec.Name]
	return img.Ref != "" && img.Spec == v.spec.Image && img.RestartCount == v.nextCount(p.s) && (early || !img.Early)
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
	if p.sandbox == nil || !p.volumesReady() || p.raising() {
		return
	}
	for _, v := range due {
		if v.class == regular && (p.startsBefore(v) || hasPostStart(v) && p.startsAfter(v)) {
			return // one after the other: the next waits for this one's postStart
		}
		if v.class == ephemeral && !p.volumesTried() {
			continue
		}
		if !p.imageReady(v, false) || !p.volumeImagesReady(v.spec) {
			if v.class == regular && !p.pullFailed(v) {
				return // regular containers start in the spec's order
			}
			continue
		}
		if p.awaitsAddress(v) {
			continue // it alone
		}
		if p.pullAnew(v) {
			if v.class == regular && !p.pullFailed(v) {
				return
			}
			continue
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
