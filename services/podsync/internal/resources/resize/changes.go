package resize

import (
	v1 "k8s.io/api/core/v1"
)

// Change is one amount of a container that a new spec asks to be other than before.
type Change struct {
	// Resource is cpu or memory; Requirement limits or requests; Operation add,
	// remove, increase or decrease.
	Resource, Requirement, Operation string
}

// Changes lists what differs between the containers of two specs of a pod.
func Changes(old, pod *v1.Pod) []Change {
	before, after := Of(old), Of(pod)
	var out []Change
	for name, m := range after.Containers {
		was, ok := before.Containers[name]
		if !ok {
			continue
		}
		for _, resource := range names {
			out = change(out, was.Requests, m.Requests, resource, "requests")
			out = change(out, was.Limits, m.Limits, resource, "limits")
		}
	}
	return out
}

func change(out []Change, was, is v1.ResourceList, name v1.ResourceName, requirement string) []Change {
	a, had := was[name]
	b, has := is[name]
	operation := ""
	switch {
	case !had && has:
		operation = "add"
	case had && !has:
		operation = "remove"
	case had && b.Cmp(a) > 0:
		operation = "increase"
	case had && b.Cmp(a) < 0:
		operation = "decrease"
	default:
		return out
	}
	return append(out, Change{Resource: string(name), Requirement: requirement, Operation: operation})
}
