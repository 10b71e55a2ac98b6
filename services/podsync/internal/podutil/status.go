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
