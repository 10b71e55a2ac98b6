package plan

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// owned are the condition types that the node agent writes.
var owned = map[v1.PodConditionType]bool{
	v1.PodReadyToStartContainers: true, v1.PodInitialized: true, v1.PodReady: true,
	v1.ContainersReady: true, v1.PodScheduled: true,
	v1.PodResizePending: true, v1.PodResizeInProgress: true, v1.AllContainersRestarting: true,
}

// conditions sets the pod's conditions; those of others are kept as they are.
func (p *planner) conditions(st *v1.PodStatus) {
	p.foreign(st)
	p.resizeConditions(st)
	if p.end != nil && p.end.condition != nil && p.out.Stopped {
		p.set(st, *p.end.condition)
	}
	if p.end == nil || !p.end.rejected {
		if !p.s.Node.NoReadyToStart {
			p.set(st, v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: truth(p.sandbox != nil && !p.out.Stopped && p.volumesWereReady())})
		}
		p.set(st, p.initialized(st))
		ready := p.containersReady(st)
		p.set(st, p.podReady(st, ready))
		p.set(st, ready)
	}
	p.set(st, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	if c := p.restartAllCondition(st.Phase); c != nil && (p.end == nil || !p.end.rejected) {
		p.set(st, *c)
	}
}

// foreign keeps the conditions of others as the API object has them, and the
// node's own DisruptionTarget once it was told.
func (p *planner) foreign(st *v1.PodStatus) {
	have := map[v1.PodConditionType]bool{}
	for _, c := range p.s.Pod.Status.Conditions {
		if !owned[c.Type] {
			st.Conditions = append(st.Conditions, c)
			have[c.Type] = true
		}
	}
	for _, c := range p.s.Reported.Conditions {
		if c.Type == v1.DisruptionTarget && !have[c.Type] {
			st.Conditions = append(st.Conditions, c)
		}
	}
}

// set adds a condition, or replaces the one of its type; its transition time stays while its status does.
func (p *planner) set(st *v1.PodStatus, c v1.PodCondition) {
	c.ObservedGeneration = p.s.Pod.Generation
	c.LastTransitionTime = metav1.NewTime(p.s.Now)
	for _, old := range p.s.Reported.Conditions {
		if old.Type == c.Type && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	for i := range st.Conditions {
		if st.Conditions[i].Type == c.Type {
			st.Conditions[i] = c
			return
		}
	}
	st.Conditions = append(st.Conditions, c)
}

func truth(b bool) v1.ConditionStatus {
	if b {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

func (p *planner) initialized(st *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if st.Phase == v1.PodSucceeded {
		c.Reason = "PodCompleted"
		return c
	}
	var incomplete []string
	anew, furthest := p.initializesAnew(), p.furthestInit()
	for i, v := range p.views {
		if last := v.shown(); v.class == regular && last != nil && last.State != podstate.StateCreated && !anew {
			return c
		}
		missing := anew && v.here() == nil && i >= furthest // what ran in an earlier sandbox does not count
		if v.class == ordinaryInit && (!p.ready(v) || missing) || v.class == sidecar && !p.started(v) {
			incomplete = append(incomplete, v.spec.Name)
		}
	}
	if len(incomplete) > 0 && !p.wasInitialized() {
		c.Status, c.Reason = v1.ConditionFalse, "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(incomplete, " "))
	}
	return c
}

// wasInitialized says whether the world was told since the sandbox was made that the pod is
// initialized: a sidecar that has ended since does not take that back.
func (p *planner) wasInitialized() bool {
	told := podutil.Condition(p.s.Reported.Conditions, v1.PodInitialized)
	return told != nil && told.Status == v1.ConditionTrue && !p.s.Node.NoRestartAll &&
		p.sandbox != nil && !told.LastTransitionTime.Time.Before(p.sandbox.CreatedAt)
}

func (p *planner) containersReady(st *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue}
	switch st.Phase {
	case v1.PodSucceeded:
		c.Status, c.Reason = v1.ConditionFalse, "PodCompleted"
		return c
	case v1.PodFailed:
		c.Status, c.Reason = v1.ConditionFalse, "PodFailed"
		return c
	}
	var unready []string
	for _, v := range p.views {
		if (v.class == regular || v.class == sidecar) && !p.ready(v) {
			unready = append(unready, v.spec.Name)
		}
	}
	if len(unready) > 0 {
		c.Status, c.Reason = v1.ConditionFalse, "ContainersNotReady"
		c.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	}
	return c
}

func (p *planner) podReady(st *v1.PodStatus, containers v1.PodCondition) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReady, Status: containers.Status, Reason: containers.Reason, Message: containers.Message}
	if containers.Status != v1.ConditionTrue {
		return c
	}
	var unmet []string
	of := podutil.ConditionsByType(p.s.Pod.Status.Conditions)
	for _, gate := range p.s.Pod.Spec.ReadinessGates {
		switch have := of.Find(gate.ConditionType); {
		case have == nil:
			unmet = append(unmet, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case have.Status != v1.ConditionTrue:
			unmet = append(unmet, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, have.Status))
		}
	}
	if len(unmet) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unmet, ", ")
	}
	return c
}
