package volume

import v1 "k8s.io/api/core/v1"

// shownPlugin is the plugin's name in the series of operations on volumes.
func shownPlugin(v *v1.Volume) string {
	switch {
	case plugin(v) != "":
		return shownName(plugin(v))
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return shownName(pluginCSI)
	}
	return "other"
}

// Wanted returns how many volumes the pods of this node have, and Present how
// many of them are set up, by plugin.
func (s *Set) Wanted() map[string]int { return s.count(false) }

// Present is what Wanted says.
func (s *Set) Present() map[string]int { return s.count(true) }

func (s *Set) count(present bool) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, st := range s.pods {
		if st.pod == nil {
			continue
		}
		for i := range st.pod.Spec.Volumes {
			v := &st.pod.Spec.Volumes[i]
			if _, stands := st.paths[v.Name]; stands || !present {
				out[shownPlugin(v)]++
			}
		}
	}
	return out
}
