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

// view is one container of the spec, and the one answer to which of the runtime's
// containers of its name is meant. A name may have several: those that ended before, one
// in a sandbox that is on its way out, one of an earlier round. Rules ask by its methods,
// and nothing but this file looks into found.
type view struct {
	spec  *v1.Container
	class class
	found found
}

// found is what the runtime, or else the reported status, has of a container.
type found struct {
	here, newest, before *podstate.Container
	// remembered: newest was made up from the reported status.
	remembered bool
	// renewed ended while a resize asked for its restart.
	renewed *podstate.Container
	// round is the pod's; see podstate.Container.Round.
	round int
}

// here is the newest container of the pod's usable sandbox, unless it is of an earlier
// round; nil when there is none.
func (v *view) here() *podstate.Container { return v.found.here }

// newest is the newest container of any sandbox, or, when the runtime has lost it, what
// the reported status remembers of it; nil when there never was one.
func (v *view) newest() *podstate.Container { return v.found.newest }

// before is the newest one before newest that has ended; nil when there is none.
func (v *view) before() *podstate.Container { return v.found.before }

// shown is the container that the status is about: one that was made but never
// started says nothing yet while there is an earlier one.
func (v *view) shown() *podstate.Container {
	if v.newest().Created() && v.before() != nil {
		return v.before()
	}
	return v.newest()
}

// followed is the container that the next start follows: a start that came to nothing is
// none. It need not have ended; nil when there is none.
func (v *view) followed() *podstate.Container {
	if v.newest().Created() {
		return v.before()
	}
	return v.newest()
}

// remembered says whether newest is known from the reported status alone.
func (v *view) remembered() bool { return v.found.remembered }

// renewed says whether c ended while a resize asked for its restart: it starts again
// whatever its policy says.
func (v *view) renewed(c *podstate.Container) bool { return c != nil && v.found.renewed == c }

// stale says whether a container of this name is of an earlier round. A debug container
// belongs to none.
func (v *view) stale(c *podstate.Container) bool { return c.Round < v.found.round }

// enter says which round the pod is in, and what is only remembered: what is of an
// earlier one is not in its sandbox any more.
func (v *view) enter(round int, remembered func(*podstate.Container) int) {
	if v.class != ephemeral {
		v.found.round = round
	}
	if v.found.remembered {
		v.found.newest.Round = remembered(v.found.newest)
	}
	if v.found.here != nil && v.stale(v.found.here) {
		v.found.here = nil
	}
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
		if c := v.followed(); v.restartedForResize(s, c) {
			v.found.renewed = c
		}
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
	f := &v.found
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		if c.Name != v.spec.Name {
			continue
		}
		c = duringStart(s, c)
		if f.here == nil && usable != nil && c.SandboxID == usable.ID {
			f.here = c
		}
		switch {
		case f.newest == nil:
			f.newest = c
		case f.before == nil && c.Ended():
			f.before = c
		}
	}
	if f.newest != nil {
		return
	}
	c := fromReported(podutil.ContainerStatus(&s.Reported, v.spec.Name))
	if c == nil {
		return
	}
	f.newest, f.remembered = c, true
	// A record that the runtime has lost counts for the sandbox it ran in: a
	// finished init container is not run again, but a new sandbox begins anew.
	// Times of a status have whole seconds.
	if usable != nil && !c.StartedAt.Before(usable.CreatedAt.Truncate(time.Second)) {
		f.here = c
	}
}

// duringStart is the container as it counts while its start is not over: one
// that the runtime could not start has not ended before the action has said
// whether that was an attempt at all.
func duringStart(s *State, c *podstate.Container) *podstate.Container {
	if !c.Ended() || c.Ran() || !s.starting(c) {
		return c
	}
	made := *c
	made.State = podstate.StateCreated
	return &made
}

// nextCount is the restart count that the next start has.
func (v *view) nextCount(s *State) int {
	c := v.newest()
	logged, some := s.LogCounts[v.spec.Name]
	switch {
	case c == nil && some:
		return logged + 1
	case c == nil:
		return 0
	case c.Created():
		return c.RestartCount // made, never started: the same start goes on
	case some && v.remembered():
		return max(c.RestartCount, logged) + 1 // the status may not have been told of the last start
	}
	return c.RestartCount + 1
}
