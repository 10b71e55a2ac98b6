package podutil

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ContainerStatus is what a pod's status says of the container with that name, of
// whichever kind; nil when it says nothing.
func ContainerStatus(st *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		if cs := StatusIn(list, name); cs != nil {
			return cs
		}
	}
	return nil
}

// StatusIn is ContainerStatus of one of a status's lists.
func StatusIn(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// BareID is the runtime's own ID of a container that a status names as
// "<runtime>://<ID>".
func BareID(id string) string {
	if _, bare, found := strings.Cut(id, "://"); found {
		return bare
	}
	return id
}

// Told finds what a pod's status says of its containers, of whichever kind: it is
// ContainerStatus for all of them.
type Told struct {
	regular, init, ephemeral Index[string, v1.ContainerStatus]
}

// TellsOf is what the status says of each container.
func TellsOf(st *v1.PodStatus) Told {
	return Told{ByName(st.ContainerStatuses), ByName(st.InitContainerStatuses), ByName(st.EphemeralContainerStatuses)}
}

// Of is what is said of the container with that name; nil when nothing is.
func (t *Told) Of(name string) *v1.ContainerStatus {
	for _, list := range []*Index[string, v1.ContainerStatus]{&t.regular, &t.init, &t.ephemeral} {
		if cs := list.Find(name); cs != nil {
			return cs
		}
	}
	return nil
}

// ByName is StatusIn for all of a status's list.
func ByName(list []v1.ContainerStatus) Index[string, v1.ContainerStatus] {
	return NewIndex(list, func(cs *v1.ContainerStatus) string { return cs.Name })
}
