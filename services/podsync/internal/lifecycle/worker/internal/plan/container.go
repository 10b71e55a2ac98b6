package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// class is which of the four kinds of container of a pod.
type class int

const (
	ordinaryInit class = iota
	sidecar
	regular
	ephemeral
)

// view is one container of the spec beside what the runtime has of it.
type view struct {
	spec  *v1.Container
	class class
	// cur is the newest container of the pod's usable sandbox; nil when none.
	cur *podstate.Container
	// last is the newest container of any sandbox, or one made up from the
	// reported status when the runtime has lost it; nil when it never was.
	last *podstate.Container
	// previous is the newest ended one before last.
	previous *podstate.Container
	// lost is true when last was made up from the reported status.
	lost bool
	// renew is a container that ended while a resize asked for its restart: it
	// starts again whatever its policy says.
	renew *podstate.Container
}

// views lists the containers in the order init, regular, ephemeral.
func views(s *State) []*view {
	if s.Pod == nil {
		return nil
	}
	var out []*view
	usable := usableSandbox(s)
	add := func(c *v1.Container, k class) {
		v := &view{spec: c, class: k}
		v.observe(s, usable)
		v.renewal(s)
		out = append(out, v)
	}
	for i := range s.Pod.Spec.InitContainers {
		c := &s.Pod.Spec.InitContainers[i]
		k := ordinaryInit
		if podutil.Sidecar(c) {
			k = sidecar
		}
		add(c, k)
	}
	for i := range s.Pod.Spec.Containers {
		add(&s.Pod.Spec.Containers[i], regular)
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		e := &s.Pod.Spec.EphemeralContainers[i]
		c := v1.Container(e.EphemeralContainerCommon)
		add(&c, ephemeral)
	}
	return out
}

// observe fills in what the runtime, or the reported status, has of the container.
func (v *view) observe(s *State, usable *podstate.Sandbox) {
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		if c.Name != v.spec.Name {
			continue
		}
		c = duringStart(s, c)
		if v.cur == nil && usable != nil && c.SandboxID == usable.ID {
			v.cur = c
		}
		switch {
		case v.last == nil:
			v.last = c
		case v.previous == nil && c.State == podstate.StateExited:
			v.previous = c
		}
	}
	if v.last != nil {
		return
	}
	c := fromReported(reportedStatus(s, v.spec.Name))
	if c == nil {
		return
	}
	v.last, v.lost = c, true
	// A record that the runtime has lost counts for the sandbox it ran in: a
	// finished init container is not run again, but a new sandbox begins anew.
	// Times of a status have whole seconds.
	if usable != nil && !c.StartedAt.Before(usable.CreatedAt.Truncate(time.Second)) {
		v.cur = c
	}
}

// duringStart is the container as it counts while its start is not over: one
// that the runtime could not start has not ended before the action has said
// whether that was an attempt at all.
func duringStart(s *State, c *podstate.Container) *podstate.Container {
	a, ok := s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: c.Name}]
	if !ok || a.Attempt != c.RestartCount || a.SandboxID != c.SandboxID || c.State != podstate.StateExited || !c.StartedAt.IsZero() {
		return c
	}
	made := *c
	made.State = podstate.StateCreated
	return &made
}

// shown is the container that the status is about: one that was made but never
// started says nothing yet while there is an earlier one.
func (v *view) shown() *podstate.Container {
	if v.last != nil && v.last.State == podstate.StateCreated && v.previous != nil {
		return v.previous
	}
	return v.last
}

const (
	reasonUnknown = "ContainerStatusUnknown"
	lostMessage   = "The container could not be located when the pod was deleted.  The container used to be Running"
	goneMessage   = "The container could not be located when the pod was terminated"
	doneMessage   = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
)

// fromReported makes a container from a reported status whose container the
// runtime does not have any more; nil when the status names none. One that is
// made and not yet started is not named, but the one before it is.
func fromReported(st *v1.ContainerStatus) *podstate.Container {
	if st == nil || st.ContainerID == "" && st.LastTerminationState.Terminated == nil {
		return nil
	}
	c := &podstate.Container{ID: bareID(st.ContainerID), Name: st.Name, RestartCount: int(st.RestartCount), State: podstate.StateExited, Image: st.Image, ImageID: st.ImageID, User: st.User}
	for i := range st.VolumeMounts {
		if m := &st.VolumeMounts[i]; m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled {
			c.RecursiveReadOnly = append(c.RecursiveReadOnly, m.MountPath)
		}
	}
	switch {
	case st.State.Terminated != nil:
		t := st.State.Terminated
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
		c.ExitCode, c.Reason, c.Message = t.ExitCode, t.Reason, t.Message
	case st.State.Running != nil:
		c.StartedAt = st.State.Running.StartedAt.Time
		c.ExitCode, c.Reason, c.Message = 137, reasonUnknown, lostMessage
	case st.LastTerminationState.Terminated != nil:
		t := st.LastTerminationState.Terminated
		c.ID = bareID(t.ContainerID)
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
		c.ExitCode, c.Reason, c.Message = t.ExitCode, t.Reason, t.Message
	default:
		return nil
	}
	return c
}

func reportedStatus(s *State, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{s.Reported.InitContainerStatuses, s.Reported.ContainerStatuses, s.Reported.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// nextCount is the restart count that the next start has.
func (v *view) nextCount(s *State) int {
	if v.last != nil {
		if v.last.State == podstate.StateCreated {
			return v.last.RestartCount // made, never started: the same start goes on
		}
		if n, ok := s.LogCounts[v.spec.Name]; ok && v.lost {
			return max(v.last.RestartCount, n) + 1 // the status may not have been told of the last start
		}
		return v.last.RestartCount + 1
	}
	if n, ok := s.LogCounts[v.spec.Name]; ok {
		return n + 1
	}
	return 0
}

const (
	firstBackoff      = 10 * time.Second
	longestBackoff    = 300 * time.Second
	backoffForgetting = 10 * time.Minute
)

// restartAt says when the container may start again after c ended, and the
// back-off that the new container is to carry.
func restartAt(c *podstate.Container, node Node) (time.Time, time.Duration) {
	first, longest := firstBackoff, longestBackoff
	if node.FirstContainerRestartPeriod > 0 {
		first = node.FirstContainerRestartPeriod
	}
	if node.MaxContainerRestartPeriod > 0 {
		longest = node.MaxContainerRestartPeriod
	}
	first = min(first, longest)
	wait := min(c.Backoff, longest)
	if !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffForgetting {
		return c.FinishedAt, first
	}
	if wait <= 0 {
		return c.FinishedAt, first
	}
	return c.FinishedAt.Add(wait), min(2*wait, longest)
}
