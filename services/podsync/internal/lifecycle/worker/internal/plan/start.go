package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// prepare does beforehand all else that the containers to start need.
func (p *planner) prepare(due []*view) {
	if p.sandbox == nil {
		p.makeSandbox()
	}
	p.pullVolumes()
	for _, v := range due {
		v.due = true
	}
	for _, v := range p.views {
		if v.due || p.first(v) {
			p.pull(v, !v.due)
		}
	}
}

// first says whether the container will start for the first time later on, so
// that its image can be pulled while others run.
func (p *planner) first(v *view) bool {
	return v.newest() == nil && v.class != ephemeral
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
	begins, comes := p.starts()
	for _, v := range due {
		if v.class == regular && (begins < v.at || hasPostStart(v) && comes > v.at) {
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
		if p.emitStart(v) && v.class == regular {
			begins = min(begins, v.at)
		}
	}
}

func (p *planner) emitStart(v *view) (begins bool) {
	_, backoff := p.restartTime(v)
	attempt := v.nextCount(p.s)
	return p.emit(podstate.Action{
		Key: podstate.Key{Kind: podstate.StartContainer, Object: v.spec.Name}, Container: v.spec.Name, SandboxID: p.sandbox.ID,
		Attempt: attempt, ImageRef: p.s.Images[v.spec.Name].Ref, Backoff: backoff, Round: p.round,
		VolumeRefs: p.volumeRefs(v.spec), CheckSandbox: attempt > 0, SandboxUntil: p.sandboxUntil(v),
		Beside: slices.Sorted(maps.Keys(p.s.Unremovable)),
	})
}

// starts are the places of the first regular container whose start runs, also when it is
// its postStart hook that does, and of the last that is on its way and does not run yet:
// where one before that has failed, the start of the last would come in the middle of the
// other's postStart hook. They are behind and before all when there is none.
func (p *planner) starts() (first, last int) {
	first, last = len(p.views), -1
	for i, v := range p.views {
		if v.class != regular || !p.running(podstate.StartContainer, v.spec.Name) {
			continue
		}
		first = min(first, i)
		if !v.found.start.Ran() {
			last = i
		}
	}
	return first, last
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
