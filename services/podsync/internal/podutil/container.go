package podutil

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// Kind says in which list of the pod's spec a container stands.
type Kind int

// The kinds, None for a container that the spec does not have.
const (
	None Kind = iota
	Init
	Regular
	Ephemeral
)

// Container is the pod's container of that name with its kind, in the spec itself;
// nil and None when it has none, or there is no pod.
func Container(pod *v1.Pod, name string) (*v1.Container, Kind) {
	if pod == nil {
		return nil, None
	}
	for kind, c := range Containers(pod) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, None
}

// Named finds the containers of a pod by name: it is Container for all of them.
type Named struct {
	init, regular Index[string, v1.Container]
	ephemeral     Index[string, v1.EphemeralContainer]
}

// ContainersByName are the pod's containers.
func ContainersByName(pod *v1.Pod) Named {
	name := func(c *v1.Container) string { return c.Name }
	return Named{
		init: NewIndex(pod.Spec.InitContainers, name), regular: NewIndex(pod.Spec.Containers, name),
		ephemeral: NewIndex(pod.Spec.EphemeralContainers, func(c *v1.EphemeralContainer) string { return c.Name }),
	}
}

// Of is the container with that name, in the spec itself, with its kind; nil and None
// when there is none.
func (n *Named) Of(name string) (*v1.Container, Kind) {
	if c := n.init.Find(name); c != nil {
		return c, Init
	}
	if c := n.regular.Find(name); c != nil {
		return c, Regular
	}
	if c := n.ephemeral.Find(name); c != nil {
		return (*v1.Container)(&c.EphemeralContainerCommon), Ephemeral
	}
	return nil, None
}

// Containers are all containers of the pod with their kinds, in the spec itself:
// init containers, regular ones, ephemeral ones, each in the spec's order.
func Containers(pod *v1.Pod) iter.Seq2[Kind, *v1.Container] {
	return func(yield func(Kind, *v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(Init, &pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(Regular, &pod.Spec.Containers[i]) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if !yield(Ephemeral, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Sidecar says whether an init container goes on running beside the others.
func Sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
