// Package resize holds the rules of resizing pods in place that need nothing but the
// pods: what of a pod's resources is allocated (allocation.go), what a status tells of
// that (shown.go), what a new spec asks to change (changes.go), whether a change can be
// allocated at all (decide.go), and whose turn comes first (order.go).
//
// It is pure: it must never do I/O, read a clock or keep state.
//
// A resize goes through six steps, and each is in one place:
//
//	wanted      the spec asks for something else than is allocated
//	decided     by the worker package's Registry (grant.go), which knows all pods;
//	            what this node can never do is here, the rest is admission's
//	kept        allocation.Store has it on the disk before anything is carried out
//	raised      the pod's cgroup is no smaller than what is allocated
//	changed     the containers are, those that shrink first; some are restarted
//	fitted      the pod's cgroup is what is allocated
//
// From "decided" on the planner has it: which step is next (plan/resize.go), what an
// action that ended and a previous run leave of it (plan/resizing.go), and how the
// status shows it (plan/resizestatus.go). What is left in the worker tells people: the
// events (resizeevents.go) and the series (resizemetrics.go).
package resize

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Allocation is what a pod was given of the resources that can change while it
// runs: the cpu and memory of its containers and of the pod as a whole.
type Allocation struct {
	// Containers are the init and regular containers by name; those that ask
	// for neither cpu nor memory are in it too, with nothing.
	Containers map[string]Amounts `json:"containers,omitempty"`
	// Pod is spec.resources; nil when the pod has none of its own.
	Pod *Amounts `json:"pod,omitempty"`
}

// Amounts are requests and limits of cpu and memory; or, where they are the rest of what
// is asked for, of all else, with the devices that are claimed.
type Amounts struct {
	Requests v1.ResourceList    `json:"requests,omitempty"`
	Limits   v1.ResourceList    `json:"limits,omitempty"`
	Claims   []v1.ResourceClaim `json:"claims,omitempty"`
}

// names are the resources that can be resized.
var names = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// Of is what a pod's spec asks for.
func Of(pod *v1.Pod) Allocation {
	a := Allocation{Containers: make(map[string]Amounts, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			a.Containers[list[i].Name] = amounts(&list[i].Resources)
		}
	}
	if pod.Spec.Resources != nil {
		level := amounts(pod.Spec.Resources)
		a.Pod = &level
	}
	return a
}

// From is an allocation of these resources of containers by name, and of the pod
// as a whole, nil when it has none of its own.
func From(containers map[string]v1.ResourceRequirements, pod *v1.ResourceRequirements) Allocation {
	a := Allocation{Containers: make(map[string]Amounts, len(containers))}
	for name, r := range containers {
		a.Containers[name] = amounts(&r)
	}
	if pod != nil {
		level := amounts(pod)
		a.Pod = &level
	}
	return a
}

func amounts(r *v1.ResourceRequirements) Amounts {
	return Amounts{Requests: pick(r.Requests), Limits: pick(r.Limits)}
}

func pick(l v1.ResourceList) v1.ResourceList {
	var out v1.ResourceList
	for _, name := range names {
		if q, ok := l[name]; ok {
			if out == nil {
				out = v1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

// Rest is what a pod's spec asks for beside that: resources that no resize changes.
func Rest(pod *v1.Pod) Allocation {
	a := Allocation{Containers: map[string]Amounts{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			a.rest(list[i].Name, &list[i].Resources)
		}
	}
	if pod.Spec.Resources != nil {
		a.Pod = &Amounts{Requests: others(pod.Spec.Resources.Requests), Limits: others(pod.Spec.Resources.Limits)}
	}
	return a
}

// RestFrom is the rest of these resources.
func RestFrom(containers map[string]v1.ResourceRequirements, pod *v1.ResourceRequirements) Allocation {
	a := Allocation{Containers: map[string]Amounts{}}
	for name, r := range containers {
		a.rest(name, &r)
	}
	if pod != nil {
		a.Pod = &Amounts{Requests: others(pod.Requests), Limits: others(pod.Limits)}
	}
	return a
}

// rest notes the rest of a container, when there is any.
func (a Allocation) rest(name string, r *v1.ResourceRequirements) {
	if m := (Amounts{Requests: others(r.Requests), Limits: others(r.Limits), Claims: r.Claims}); len(m.Requests)+len(m.Limits)+len(m.Claims) > 0 {
		a.Containers[name] = m
	}
}

func others(l v1.ResourceList) v1.ResourceList {
	var out v1.ResourceList
	for name, q := range l {
		if slices.Contains(names[:], name) {
			continue
		}
		if out == nil {
			out = v1.ResourceList{}
		}
		out[name] = q
	}
	return out
}

// Asks says whether anything was asked for. A pod that asks for nothing is
// BestEffort, and no resize may change its class.
func (a Allocation) Asks() bool {
	for _, m := range a.Containers {
		if len(m.Requests)+len(m.Limits) > 0 {
			return true
		}
	}
	return a.Pod != nil && len(a.Pod.Requests)+len(a.Pod.Limits) > 0
}

// Equal compares amounts, not how they are written.
func (a Allocation) Equal(b Allocation) bool {
	if (a.Pod == nil) != (b.Pod == nil) || a.Pod != nil && !a.Pod.equal(*b.Pod) {
		return false
	}
	return maps.EqualFunc(a.Containers, b.Containers, Amounts.equal)
}

func (m Amounts) equal(o Amounts) bool {
	return same(m.Requests, o.Requests) && same(m.Limits, o.Limits)
}

func same(a, b v1.ResourceList) bool {
	for _, name := range names {
		p, hasP := a[name]
		q, hasQ := b[name]
		if hasP != hasQ || p.Cmp(q) != 0 {
			return false
		}
	}
	return true
}

// Apply is the pod with its allocation in place of what its spec asks for: pod
// itself when both are the same, else a copy. What the allocation does not know
// stays as the spec has it.
func (a Allocation) Apply(pod *v1.Pod) *v1.Pod {
	if a.Equal(Of(pod)) {
		return pod
	}
	out := pod.DeepCopy()
	for _, list := range [][]v1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			if m, ok := a.Containers[list[i].Name]; ok {
				m.apply(&list[i].Resources)
			}
		}
	}
	out.Spec.Resources = a.applyPod(out.Spec.Resources)
	return out
}

func (a Allocation) applyPod(r *v1.ResourceRequirements) *v1.ResourceRequirements {
	if r == nil {
		r = &v1.ResourceRequirements{}
	}
	if a.Pod != nil {
		a.Pod.apply(r)
		return r
	}
	Amounts{}.apply(r)
	if len(r.Requests) == 0 && len(r.Limits) == 0 {
		return nil
	}
	return r
}

func (m Amounts) apply(r *v1.ResourceRequirements) {
	r.Requests, r.Limits = put(r.Requests, m.Requests), put(r.Limits, m.Limits)
}

// put replaces the resizable part of a list.
func put(l, with v1.ResourceList) v1.ResourceList {
	for _, name := range names {
		q, ok := with[name]
		switch {
		case ok && l == nil:
			l = v1.ResourceList{name: q}
		case ok:
			l[name] = q
		default:
			delete(l, name)
		}
	}
	if len(l) == 0 {
		return nil
	}
	return l
}

// Encode writes an allocation for an annotation.
func (a Allocation) Encode() (string, error) {
	raw, err := json.Marshal(a)
	return string(raw), err
}

// Decode reads what Encode wrote; false when it is something else.
func Decode(text string) (Allocation, bool) {
	var a Allocation
	if text == "" || json.Unmarshal([]byte(text), &a) != nil || len(a.Containers) == 0 {
		return Allocation{}, false
	}
	return a, true
}
