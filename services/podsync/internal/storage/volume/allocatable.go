package volume

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AllocatableChanged tells that pods may use another amount of the node: a limit that
// a container does not set is shown as that.
func (s *Set) AllocatableChanged() {
	s.mu.Lock()
	var show []types.UID
	for uid, st := range s.pods {
		if st.pod != nil && slices.ContainsFunc(st.pod.Spec.Volumes, showsResources) {
			show = append(show, uid)
		}
	}
	s.mu.Unlock()
	s.ObjectChanged(show)
}

// showsResources says whether a volume shows what containers may use.
func showsResources(v v1.Volume) bool {
	resource := func(f v1.DownwardAPIVolumeFile) bool { return f.ResourceFieldRef != nil }
	switch {
	case v.DownwardAPI != nil:
		return slices.ContainsFunc(v.DownwardAPI.Items, resource)
	case v.Projected != nil:
		return slices.ContainsFunc(v.Projected.Sources, func(p v1.VolumeProjection) bool {
			return p.DownwardAPI != nil && slices.ContainsFunc(p.DownwardAPI.Items, resource)
		})
	}
	return false
}
