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
	at    int // its place among the planner's views
	found found
	// told is what the reported status says of it; nil when that says nothing.
	told *v1.ContainerStatus
	// due: it is to start now.
	due bool
	// dead counts those that have ended; see kept.
	dead int
}

// found is what the runtime, or else the reported status, has of a container.
type found struct {
	here, newest, before *podstate.Container
	// start is what a start that is not over has made; nil when there is none.
	start *podstate.Container
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
func (v *view) enter(round int, before earlier) {
	if v.class != ephemeral {
		v.found.round = round
	}
	if v.found.remembered {
		v.found.newest.Round = before.roundOf(v.found.newest, round)
	}
	if v.found.here != nil && v.stale(v.found.here) {
		v.found.here = nil
	}
}

// look looks at the containers of the pod. Each is looked up but once: a pod may have
// thousands.
func (p *planner) look(s *State) {
	p.s, p.sandbox, p.lastNeeding, p.observed = s, usableSandbox(s), -1, s.Observed.ByID()
	if s.Pod == nil {
		return
	}
	p.list()
	for i := range s.Observed.Containers {
		if v := p.viewOf(s.Observed.Containers[i].Name); v != nil {
			v.observe(s, p.sandbox, &s.Observed.Containers[i])
		}
	}
	told := podutil.TellsOf(&s.Reported)
	for i, v := range p.views {
		v.told = told.Of(v.spec.Name)
		v.remember(p.sandbox)
		if c := v.followed(); v.restartedForResize(s, c) {
			v.found.renewed = c
		}
		if (v.class == regular || v.class == sidecar) && v.newest().Live() {
			p.lastNeeding = i
		}
	}
}

// list makes the views, in the order init, regular, ephemeral.
func (p *planner) list() {
	spec := &p.s.Pod.Spec
	all := make([]view, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	p.views = make([]*view, 0, cap(all))
	for kind, c := range podutil.Containers(p.s.Pod) {
		all = append(all, view{spec: c, class: classOf(kind, c), at: len(all)})
		p.views = append(p.views, &all[len(all)-1])
	}
	p.names = podutil.NewIndex(p.views, func(v **view) string { return (*v).spec.Name })
	p.volumes = podutil.VolumesByName(p.s.Pod)
}

func classOf(kind podutil.Kind, c *v1.Container) class {
	switch {
	case kind == podutil.Ephemeral:
		return ephemeral
	case kind == podutil.Regular:
		return regular
	case podutil.Sidecar(c):
		return sidecar
	}
	return ordinaryInit
}

// viewOf is the view of the container with that name; nil when the spec has none.
func (p *planner) viewOf(name string) *view {
	if v := p.names.Find(name); v != nil {
		return *v
	}
	return nil
}

// container is what the runtime has of an id; nil when it has nothing.
func (p *planner) container(id string) *podstate.Container { return p.observed.Find(id) }

// observe takes in what the runtime has of the container, newest first.
func (v *view) observe(s *State, usable *podstate.Sandbox, c *podstate.Container) {
	f := &v.found
	if f.start == nil && s.starting(c) {
		f.start = c
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

// remember takes what the status was told of a container that the runtime has lost.
func (v *view) remember(usable *podstate.Sandbox) {
	f := &v.found
	if f.newest != nil {
		return
	}
	c := fromReported(v.told)
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
	case c.Created() && !s.Unremovable[c.ID]:
		return c.RestartCount // made, never started: the same start goes on
	case some && v.remembered():
		return max(c.RestartCount, logged) + 1 // the status may not have been told of the last start
	}
	return c.RestartCount + 1
}
