package plan

import (
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// usableSandbox is the sandbox that containers can run in; nil when a new one is needed.
// None is usable when two are ready, as with a kubelet: which of them the pod's network
// is, nobody knows.
func usableSandbox(s *State) *podstate.Sandbox {
	if len(s.Observed.Sandboxes) == 0 || s.Pod == nil {
		return nil
	}
	ready := 0
	for i := range s.Observed.Sandboxes {
		if s.Observed.Sandboxes[i].Ready {
			ready++
		}
	}
	newest := &s.Observed.Sandboxes[0]
	if ready != 1 || !newest.Up() || newest.HostNetwork != s.Pod.Spec.HostNetwork {
		return nil
	}
	if _, stopping := s.InFlight[podstate.Key{Kind: podstate.StopSandbox, Object: newest.ID}]; stopping {
		return nil
	}
	return newest
}

// stopSandboxes stops every sandbox but the usable one, whatever the runtime
// shows of it, until that has succeeded once, and says whether all are down. A
// runtime calls a sandbox not ready as soon as its process has ended, which may
// be long before its network is taken down, or without that: its process died,
// or the node was booted, or the plugin failed. Once more is harmless.
// Source: the CRI's contract of StopPodSandbox.
func (p *planner) stopSandboxes() bool {
	// What one in flight has done so far does not count.
	down := !p.anyRunning(podstate.StopSandbox)
	for i := range p.s.Observed.Sandboxes {
		sb := &p.s.Observed.Sandboxes[i]
		if sb.ID == p.usableID() || p.down(sb) {
			continue
		}
		down = false
		if !p.liveIn(sb.ID) && !p.startingIn(sb.ID) && !p.beingMade(sb) {
			p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.StopSandbox, Object: sb.ID}, ID: sb.ID})
		}
	}
	return down
}

// down says whether a sandbox is stopped and its network taken down.
func (p *planner) down(sb *podstate.Sandbox) bool { return !sb.Ready && p.s.StoppedSandboxes[sb.ID] }

// usableID is the id of the sandbox that the pod goes on in; empty when there
// is none, or the pod is to end.
func (p *planner) usableID() string {
	if p.sandbox == nil || p.end != nil {
		return ""
	}
	return p.sandbox.ID
}

// beingMade says whether a sandbox is what a MakeSandbox in flight is making.
func (p *planner) beingMade(sb *podstate.Sandbox) bool {
	a, ok := p.s.InFlight[podstate.Key{Kind: podstate.MakeSandbox}]
	return ok && uint32(a.Attempt) == sb.Attempt
}

// startingIn says whether a start in the sandbox is in flight: what it starts may
// run without having been seen, and its sandbox's stop would end it without grace.
func (p *planner) startingIn(sandbox string) bool {
	for k, a := range p.s.InFlight {
		if k.Kind == podstate.StartContainer && a.SandboxID == sandbox {
			return true
		}
	}
	return false
}

// podStarted is when the pod began. The reported status says so, or, for a pod
// that no apiserver has told this process of, the oldest record of its sandboxes.
func (p *planner) podStarted() time.Time {
	if t := p.s.Reported.StartTime; t != nil {
		return t.Time
	}
	began := p.s.Now
	for i := range p.s.Observed.Sandboxes {
		if t := p.s.Observed.Sandboxes[i].PodStarted; !t.IsZero() && t.Before(began) {
			began = t
		}
	}
	return began
}

// nextAttempt is the attempt number of the next sandbox.
func nextAttempt(s *State) int {
	if len(s.Observed.Sandboxes) == 0 {
		return 0
	}
	return int(s.Observed.Sandboxes[0].Attempt) + 1
}
