package status

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// A spec may say in a message, a name or a path nearly as much as the apiserver
// stores of an object. A status that repeats it could never be written, and nobody
// would learn why the pod does not start. In bytes:
const (
	// mostWaiting is what all containers of a pod say of why they wait, and
	// leastWaiting what each may say whatever the others do.
	mostWaiting, leastWaiting = 64 << 10, 128
	// mostMessage is what the pod, or a condition of it, says.
	mostMessage = 16 << 10
	// mostImage is a container's image: names that can be pulled are far shorter.
	mostImage = 4 << 10
	// mostMounts are the paths of all mounts, which are left out when they are longer.
	mostMounts = 128 << 10
)

// fit cuts what would keep a status from being written.
func fit(st *v1.PodStatus) {
	st.Message = cut(st.Message, mostMessage)
	for i := range st.Conditions {
		st.Conditions[i].Message = cut(st.Conditions[i].Message, mostMessage)
	}
	lists := [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
	paths, count := 0, 0
	for _, list := range lists {
		count += len(list)
		for i := range list {
			for _, m := range list[i].VolumeMounts {
				paths += len(m.Name) + len(m.MountPath)
			}
		}
	}
	for _, list := range lists {
		for i := range list {
			c := &list[i]
			c.Image = cut(c.Image, mostImage)
			if paths > mostMounts {
				c.VolumeMounts = nil
			}
			for _, state := range []*v1.ContainerState{&c.State, &c.LastTerminationState} {
				if state.Waiting != nil {
					state.Waiting.Message = cut(state.Waiting.Message, max(mostWaiting/count, leastWaiting))
				}
			}
		}
	}
}

// cut is a text of at most so many bytes, without half of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
