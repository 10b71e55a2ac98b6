package plan

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// resizeConditions shows how a resize stands: one that waits to be allocated,
// one that is being carried out, or both.
func (p *planner) resizeConditions(st *v1.PodStatus) {
	if p.out.Stopped || p.end != nil && p.end.rejected {
		return
	}
	r := &p.s.Resize
	if w := r.Pending; w != nil {
		p.setAt(st, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: w.Reason, Message: w.Message}, w.Generation)
	}
	if r.Next == nil && !r.Unfinished {
		return
	}
	c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}
	if c.Message = p.resizeErrors(); c.Message != "" {
		c.Reason = v1.PodReasonError
	}
	generation := r.Generation
	if r.Next != nil {
		generation = r.NextGeneration
	}
	p.setAt(st, c, generation)
}

// setAt sets a condition that is about an earlier generation of the pod.
func (p *planner) setAt(st *v1.PodStatus, c v1.PodCondition, generation int64) {
	p.set(st, c)
	for i := range st.Conditions {
		if st.Conditions[i].Type == c.Type && generation > 0 {
			st.Conditions[i].ObservedGeneration = generation
		}
	}
}

// resizeErrors are the failures of what the resize has still to do.
func (p *planner) resizeErrors() string {
	var errs []string
	for k, f := range p.s.Failures {
		switch k.Kind {
		case podstate.KeepAllocation, podstate.RaiseCgroup, podstate.FitCgroup:
		case podstate.ResizeContainer:
			if c := p.container(k.Object); c == nil || c.State != podstate.StateRunning {
				continue
			}
		default:
			continue
		}
		errs = append(errs, f.Message)
	}
	slices.Sort(errs)
	return strings.Join(slices.Compact(errs), "; ")
}

// containerResources shows what a container that was made was allocated and what
// it has. What the kernel cannot tell, as memory requests, is shown as allocated,
// and so is what it has in effect: its own numbers are coarser. A debug container
// may not ask for any, and shows that.
func (p *planner) containerResources(cs *v1.ContainerStatus, v *view, c *podstate.Container) {
	if c == nil {
		return
	}
	cs.AllocatedResources = v.spec.Resources.Requests.DeepCopy()
	cs.Resources = v.spec.Resources.DeepCopy()
	if v.class == ephemeral || c.State != podstate.StateRunning || c.Kernel == nil {
		return
	}
	want, have := p.kernel(v), *c.Kernel
	if want.Shares != have.Shares {
		show(cs.Resources.Requests, v1.ResourceCPU, have.MilliCPU())
	}
	if want.Quota != have.Quota || want.Period != have.Period {
		show(cs.Resources.Limits, v1.ResourceCPU, have.CPULimit())
	}
	if want.Memory != have.Memory {
		show(cs.Resources.Limits, v1.ResourceMemory, *resource.NewQuantity(have.Memory, resource.BinarySI))
	}
}

// show replaces what is shown of a resource that was asked for; what was not is
// the runtime's own. Nothing of it in effect takes it out.
func show(shown v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	if _, asked := shown[name]; !asked {
		return
	}
	if q.IsZero() {
		delete(shown, name)
		return
	}
	shown[name] = q
}

// podResources shows what the pod as a whole was allocated and what is in effect
// of it: what its spec says of the pod as a whole, or else what its containers
// come to together, with the overhead of its RuntimeClass.
func (p *planner) podResources(st *v1.PodStatus) {
	if p.s.Node.NoPodLevelResize || p.end != nil && p.end.rejected {
		return
	}
	options := podresource.PodResourcesOptions{}
	st.AllocatedResources = podresource.PodRequests(p.s.Pod, options)
	whole := p.s.Pod.Spec.Resources
	if whole == nil {
		whole = &v1.ResourceRequirements{Requests: st.AllocatedResources, Limits: podresource.PodLimits(p.s.Pod, options)}
	}
	if p.s.Resize.Unfinished && p.s.Reported.Resources != nil {
		st.Resources = p.s.Reported.Resources.DeepCopy()
		return
	}
	st.Resources = &v1.ResourceRequirements{Requests: whole.Requests.DeepCopy(), Limits: whole.Limits.DeepCopy()}
}
