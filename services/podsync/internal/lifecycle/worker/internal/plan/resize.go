package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// resize brings what was allocated into effect: the pod's cgroup grows first,
// then containers change, those that shrink before those that grow, and when
// none of them needs more any longer the pod's cgroup shrinks.
// Source: KEP-1287.
func (p *planner) resize() {
	r := &p.s.Resize
	switch {
	case r.Next != nil:
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.KeepAllocation}, Allocation: r.Next, Generation: r.NextGeneration})
	case r.Unkept != nil: // a later run would take the spec for what it was admitted with
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.KeepAllocation}, Allocation: r.Unkept, Generation: r.Generation})
	}
	if r.Pending != nil {
		p.wait("resize", "", r.Pending.Reason+": "+r.Pending.Message, "it is tried again when something of the node becomes free", time.Time{})
	}
	switch {
	case !r.Unfinished || r.Next != nil:
		return // what replaces it comes first
	case !r.Raised:
		if p.anyRunning(podstate.FitCgroup) {
			return // it shrinks to an earlier size, and would do so after this
		}
		a := podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, Generation: r.Generation, Limits: p.smallerLimits()}
		if p.sandbox != nil {
			a.ID = p.sandbox.ID
		}
		p.emit(a)
		return
	}
	if !p.resizeContainers() {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.FitCgroup}, Generation: r.Generation})
	}
}

// smallerLimits are those of memory that the resize takes away from what runs on. What a
// container has that nobody knows is looked at when it is changed.
func (p *planner) smallerLimits() (limits []podstate.MemoryLimit) {
	for _, v := range p.views {
		c := v.here()
		if v.class == ephemeral || c == nil || c.State != podstate.StateRunning || p.running(podstate.KillContainer, c.ID) || outdated(p.s, v, c) {
			continue
		}
		want := p.kernel(v)
		if have, known := p.has(c); known && have != want && p.takesMemory(c, want.Memory) {
			limits = append(limits, podstate.MemoryLimit{Container: c.Name, ID: c.ID, Bytes: want.Memory})
		}
	}
	return limits
}

// raising says whether the pod's cgroup is about to become no smaller than what is
// allocated, which is what a start gets. One that cannot is not waited for: the runtime,
// or a plugin of it, may refuse that for ever.
func (p *planner) raising() bool {
	_, failed := p.s.Failures[podstate.Key{Kind: podstate.RaiseCgroup}]
	return p.s.Resize.Unfinished && !p.s.Resize.Raised && !failed
}

// outOfStep says whether a container of the pod runs with other resources than
// the pod was allocated.
func outOfStep(s State) bool {
	p := &planner{}
	p.look(&s)
	for _, v := range p.views {
		if v.class == ephemeral || v.here() == nil || v.here().State != podstate.StateRunning {
			continue
		}
		if have, known := p.has(v.here()); known && have != p.kernel(v) {
			return true
		}
	}
	return false
}

// resizeContainers changes what runs with other resources than it was allocated,
// and says whether something of the pod still may have others.
func (p *planner) resizeContainers() (outstanding bool) {
	var shrink, grow []podstate.Action
	for _, v := range p.views {
		c := v.here()
		if v.class == ephemeral || c == nil && !p.running(podstate.StartContainer, v.spec.Name) {
			continue
		}
		// What starts now was made with what was allocated before, perhaps, and
		// what is to be restarted ends soon: both are looked at again then.
		if p.running(podstate.StartContainer, v.spec.Name) || c.Live() && (p.running(podstate.KillContainer, c.ID) || p.restartsForResize(v, c)) {
			outstanding = true
			continue
		}
		want := p.kernel(v)
		have, known := p.has(c)
		// A change that is under way may be to an earlier size.
		if c.State != podstate.StateRunning || known && have == want && !p.running(podstate.ResizeContainer, c.ID) {
			continue
		}
		outstanding = true
		a := podstate.Action{Key: podstate.Key{Kind: podstate.ResizeContainer, Object: c.ID}, Container: c.Name, ID: c.ID, Kernel: want, Shrinks: p.takesMemory(c, want.Memory)}
		if known && have.Lowers(want) {
			shrink = append(shrink, a)
		} else {
			grow = append(grow, a)
		}
	}
	if len(shrink) == 0 {
		shrink = grow
	}
	for _, a := range shrink {
		p.emit(a)
	}
	return outstanding
}

// kernel is what the container is to have.
func (p *planner) kernel(v *view) resources.Kernel {
	return resources.ForContainer(resources.Effective(p.s.Pod, v.spec), p.s.Node.Quotas)
}

// has is what a container has: what the runtime was told last, or says, or what
// it was made with. It is not known of another agent's container when the
// runtime does not say, and not after a change that failed.
func (p *planner) has(c *podstate.Container) (resources.Kernel, bool) {
	if _, unsure := p.s.Resize.Unsure[c.ID]; unsure {
		return resources.Kernel{}, false
	}
	return p.had(c)
}

// takesMemory says whether a limit of memory, in bytes, may be less than what the
// container has: a change that failed may have been made or not.
func (p *planner) takesMemory(c *podstate.Container, limit int64) bool {
	if limit <= 0 {
		return false
	}
	less := func(has int64) bool { return has <= 0 || limit < has }
	had, known := p.had(c)
	tried, unsure := p.s.Resize.Unsure[c.ID]
	return !known || less(had.Memory) || unsure && less(tried)
}

// had is what a container has if no change that failed was made all the same.
func (p *planner) had(c *podstate.Container) (resources.Kernel, bool) {
	if k, ok := p.s.Resize.Sent[c.ID]; ok {
		return k, true
	}
	switch {
	case c.Kernel != nil:
		return *c.Kernel, true
	case c.Made != nil:
		return resources.ForContainer(*c.Made, p.s.Node.Quotas), true
	}
	return resources.Kernel{}, false
}

// restartsForResize says whether a running container has other resources than
// it was allocated and asks to be restarted for that.
func (p *planner) restartsForResize(v *view, c *podstate.Container) bool {
	r := &p.s.Resize
	return r.Unfinished && r.Raised && r.Next == nil && c.State == podstate.StateRunning && v.class != ephemeral && outdated(p.s, v, c)
}

// outdated says whether a container was made with other amounts of a resource
// than it was allocated, where it asks for a restart.
func outdated(s *State, v *view, c *podstate.Container) bool {
	now := resources.Effective(s.Pod, v.spec)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if resize.Restarts(v.spec, name) && differs(s, c, now, name) {
			return true
		}
	}
	return false
}

// differs compares what a container was made with and what it is to have.
// Without the annotation, what the runtime says has to do.
func differs(s *State, c *podstate.Container, now v1.ResourceRequirements, name v1.ResourceName) bool {
	if c.Made != nil {
		return unequal(c.Made.Requests, now.Requests, name) || unequal(c.Made.Limits, now.Limits, name)
	}
	if c.Kernel == nil {
		return false
	}
	want := resources.ForContainer(now, s.Node.Quotas)
	if name == v1.ResourceMemory {
		return c.Kernel.Memory != want.Memory
	}
	return c.Kernel.Shares != want.Shares || c.Kernel.Quota != want.Quota
}

func unequal(a, b v1.ResourceList, name v1.ResourceName) bool {
	p, hasP := a[name]
	q, hasQ := b[name]
	return hasP != hasQ || p.Cmp(q) != 0
}

// resized says whether the container was made with other resources than the
// next one will be: its back-off is not the next one's.
func (p *planner) resized(v *view, c *podstate.Container) bool {
	if c.Made == nil || p.s.Resize.At.IsZero() {
		return false
	}
	now := resources.Effective(p.s.Pod, v.spec)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if differs(p.s, c, now, name) {
			return true
		}
	}
	return false
}

// restartedForResize says whether a container ended while it was to be restarted for a
// resize. One that had ended before stays as its policy says, and so does one that has
// ended by itself; of a resize of a previous run nobody knows which it was.
func (v *view) restartedForResize(s *State, c *podstate.Container) bool {
	if !c.Ended() || v.remembered() || v.class == ephemeral || s.Resize.At.IsZero() || c.FinishedAt.Before(s.Resize.At) || !outdated(s, v, c) {
		return false
	}
	_, asked := s.Stops[c.ID]
	return asked || !s.Resize.Ours
}
