package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// errorShown is how long a failed pull shows its error before it shows that it backs off.
const errorShown = 2 * time.Second

// reasonBackOff is that of a container that has ended and waits for its restart.
const reasonBackOff = "CrashLoopBackOff"

// containerStatus computes the status of one container.
func (p *planner) containerStatus(v *view) v1.ContainerStatus {
	cs := v1.ContainerStatus{Name: v.spec.Name, Image: v.spec.Image}
	c := v.shown()
	if p.out.Stopped && v.newest().CutShort() {
		ended := *v.newest()
		ended.State, c = podstate.StateExited, &ended
	}
	p.containerResources(&cs, v, c)
	cs.VolumeMounts = p.volumeMounts(v.spec, c)
	switch {
	case v.here() == nil && v.class == ordinaryInit && p.regularSeen():
		setForgotten(&cs, v, c)
		return cs
	case c == nil:
		p.setUnmade(&cs, v)
		return cs
	}
	cs.RestartCount = int32(c.RestartCount)
	if c.State == podstate.StateCreated {
		cs.RestartCount = max(0, cs.RestartCount-1) // made, but not started: no restart yet
	}
	cs.RestartCount = toldCount(v, cs.RestartCount) // a start that came to nothing was counted already
	if c.State != podstate.StateCreated {
		cs.ContainerID, cs.ImageID = p.fullID(c.ID), c.ImageID
		if c.Image != "" {
			cs.Image = c.Image
		}
	}
	cs.User = c.User
	p.setState(&cs, v, c)
	started := p.started(v)
	cs.Started = &started
	cs.Ready = p.ready(v)
	return cs
}

// setForgotten shows an init container that has done its work in the sandbox, and whose
// record there was removed; c is an earlier one, nil when there is none.
func setForgotten(cs *v1.ContainerStatus, v *view, c *podstate.Container) {
	started := false
	if c != nil {
		cs.RestartCount = int32(c.RestartCount)
	}
	cs.RestartCount = toldCount(v, cs.RestartCount)
	cs.Ready, cs.Started = true, &started
	cs.State.Terminated = &v1.ContainerStateTerminated{Reason: "Completed", Message: doneMessage}
}

// setUnmade shows a container of which there was none yet.
func (p *planner) setUnmade(cs *v1.ContainerStatus, v *view) {
	started := false
	cs.Started = &started
	if v.class == regular && p.out.Stopped && (!p.hasInit() || p.initDone()) {
		// What was to start and never did counts as a failure.
		cs.State.Terminated = neverSeen()
		return
	}
	cs.State.Waiting = p.waiting(v)
	cs.RestartCount = toldCount(v, 0)
}

// neverSeen is the end of a container of a pod that has ended of which no end is known.
func neverSeen() *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: 137, Reason: reasonUnknown, Message: goneMessage}
}

// toldCount is a container's restart count, or what was told of it if that is more.
func toldCount(v *view, count int32) int32 {
	if r := v.told; r != nil {
		return max(count, r.RestartCount)
	}
	return count
}

// keepEnd keeps the end that a container was told to have come to where the API
// does not take it back: it would refuse all of the pod's status. So it is with
// an init container under OnFailure that runs again for a new sandbox.
func (p *planner) keepEnd(v *view, cs *v1.ContainerStatus) {
	told := v.told
	if cs.State.Terminated != nil || told == nil || told.State.Terminated == nil || p.mayLeave(v, told.State.Terminated.ExitCode) {
		return
	}
	cs.State, cs.LastTerminationState, cs.ContainerID = *told.State.DeepCopy(), *told.LastTerminationState.DeepCopy(), told.ContainerID
}

// volumeMounts shows the mounts of a container, whether it is made yet or not.
// Source: KEP-3857.
func (p *planner) volumeMounts(spec *v1.Container, c *podstate.Container) []v1.VolumeMountStatus {
	if len(spec.VolumeMounts) == 0 {
		return nil
	}
	out := make([]v1.VolumeMountStatus, len(spec.VolumeMounts))
	var made podutil.Index[string, string]
	if c != nil {
		made = podutil.NewIndex(c.RecursiveReadOnly, func(path *string) string { return *path })
	}
	for i := range spec.VolumeMounts {
		m := &spec.VolumeMounts[i]
		out[i] = v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := p.recursiveReadOnly(m, c != nil, made.Find(m.MountPath) != nil)
			out[i].RecursiveReadOnly = &mode
		}
	}
	return out
}

// recursiveReadOnly says what became of a mount's wish: of one that may be
// granted or not the runtime knows, and before it has made the container, what
// its usual handler can do.
func (p *planner) recursiveReadOnly(m *v1.VolumeMount, known, made bool) v1.RecursiveReadOnlyMode {
	switch {
	case m.RecursiveReadOnly == nil:
		return v1.RecursiveReadOnlyDisabled
	case *m.RecursiveReadOnly != v1.RecursiveReadOnlyIfPossible:
		return *m.RecursiveReadOnly
	case known && made, !known && p.s.Node.RecursiveReadOnly:
		return v1.RecursiveReadOnlyEnabled
	}
	return v1.RecursiveReadOnlyDisabled
}

// setState sets state and last state.
func (p *planner) setState(cs *v1.ContainerStatus, v *view, c *podstate.Container) {
	if v.before() != nil && c != v.before() {
		cs.LastTerminationState.Terminated = p.terminated(v.before())
	} else if r := v.told; r != nil && r.RestartCount == int32(c.RestartCount) {
		cs.LastTerminationState = *r.LastTerminationState.DeepCopy()
	} else if r != nil && int32(c.RestartCount) == r.RestartCount+1 {
		if old := fromReported(r); old != nil && old.ID != c.ID {
			old.Round = p.round
			cs.LastTerminationState.Terminated = p.terminated(old)
		}
	}
	switch {
	case c.State == podstate.StateRunning && c.Hook == podstate.HookRunning:
		cs.State.Waiting = p.waiting(v)
	case c.State == podstate.StateRunning:
		cs.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
	case c.State == podstate.StateExited:
		p.setEnded(cs, v, c)
	case p.out.Stopped:
		cs.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 137, Reason: reasonUnknown, Message: goneMessage, ContainerID: p.fullID(c.ID)}
	default:
		cs.State.Waiting = p.waiting(v)
	}
	if p.out.Stopped && cs.State.Waiting != nil && c.State != podstate.StateExited {
		cs.State = v1.ContainerState{Terminated: neverSeen()}
	}
}

// setEnded shows a container that has ended: as ended, or as waiting for its
// next start with the end as its last state.
func (p *planner) setEnded(cs *v1.ContainerStatus, v *view, c *podstate.Container) {
	t := p.terminated(c)
	if p.end != nil || !p.wanted(v) {
		cs.State.Terminated = t
		return
	}
	w := p.failureShown(v)
	at, _ := p.restartTime(v)
	failure := p.s.Failures[podstate.Key{Kind: podstate.StartContainer, Object: v.spec.Name}]
	if p.s.Now.Before(at) && (w == nil || p.s.Now.Sub(failure.At) >= errorShown) {
		w = &v1.ContainerStateWaiting{Reason: reasonBackOff, Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			at.Sub(c.FinishedAt), v.spec.Name, p.s.Pod.Name, p.s.Pod.Namespace, p.s.UID)}
	}
	if w == nil && v.stale(c) && p.restartingAll() {
		w = &v1.ContainerStateWaiting{Reason: reasonRestartingAll}
	}
	if w == nil {
		w = p.toldBackOff(v, c) // until it has started; it does not end once more
	}
	if w == nil && (v.remembered() || v.renewed(c) || v.stale(c) || p.toRestart(v, c)) {
		w = p.waiting(v)
	}
	// The API takes a container that was told to have ended back only where a
	// policy starts it again.
	if w == nil && (!p.byPolicy(v, c) || !p.mayLeave(v, c.ExitCode)) {
		w = p.waiting(v)
	}
	if w == nil {
		cs.State.Terminated = t
		return
	}
	cs.State.Waiting = w
	cs.LastTerminationState = v1.ContainerState{Terminated: t}
}

// toldBackOff is the back-off that the container was told to wait for; nil when it
// was not.
func (p *planner) toldBackOff(v *view, c *podstate.Container) *v1.ContainerStateWaiting {
	told := v.told
	if told == nil || told.State.Waiting == nil || told.State.Waiting.Reason != reasonBackOff {
		return nil
	}
	if end := told.LastTerminationState.Terminated; end == nil || podutil.BareID(end.ContainerID) != c.ID {
		return nil
	}
	return told.State.Waiting.DeepCopy()
}

// terminated is the state of an ended container.
func (p *planner) terminated(c *podstate.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, ContainerID: p.fullID(c.ID),
		StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
	}
	if p.endedByRound(c) {
		t.ExitCode, t.Reason, t.Message = 137, reasonRestartingAll, messageRestartingAll
	}
	if t.Reason == "" {
		t.Reason = "Error"
		if c.ExitCode == 0 {
			t.Reason = "Completed"
		}
	}
	return t
}

// waiting is the state of a container that has not started.
func (p *planner) waiting(v *view) *v1.ContainerStateWaiting {
	if w := p.failureShown(v); w != nil {
		return w
	}
	if p.hasInit() {
		return &v1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

// failureShown is the state of a container whose image or start failed; nil
// when neither did.
func (p *planner) failureShown(v *view) *v1.ContainerStateWaiting {
	if f, ok := p.s.Failures[podstate.Key{Kind: podstate.StartContainer, Object: v.spec.Name}]; ok && !f.Away {
		if shown := f.At.Add(errorShown); p.s.Now.Before(shown) {
			p.wake(shown)
		}
		return &v1.ContainerStateWaiting{Reason: f.Reason, Message: f.Message}
	}
	image, f, ok := p.pullFailure(v.spec)
	if !ok || f.Away || f.Early || (v.class == regular && !p.initDone()) {
		return nil
	}
	pulled := f.Reason == "ErrImagePull" || f.Reason == "RegistryUnavailable" || f.Reason == "SignatureValidationFailed"
	if !pulled {
		return &v1.ContainerStateWaiting{Reason: f.Reason, Message: f.Message}
	}
	if shown := f.At.Add(errorShown); p.s.Now.Before(shown) {
		p.wake(shown)
		return &v1.ContainerStateWaiting{Reason: f.Reason, Message: f.Message}
	}
	return &v1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", image, f.Reason, f.Message)}
}
