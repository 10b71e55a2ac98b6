package volume

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// shownPlugin is the plugin's name in the series of operations on volumes.
func (s *Set) shownPlugin(uid types.UID, v *v1.Volume) string {
	b, _ := s.boundOf(uid, v.Name)
	return shownPlugin(v, b.Kind)
}

// shownPlugin is the same; kind is that of what a claim is bound to, if it is known.
func shownPlugin(v *v1.Volume, kind string) string {
	switch {
	case kind == claims.HostPath:
		return shownName(pluginHostPath)
	case kind == claims.Local:
		return shownName(pluginLocal)
	case plugin(v) != "":
		return shownName(plugin(v))
	case ofClaim(v):
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
				out[shownPlugin(v, st.bound[v.Name].Kind)]++
			}
		}
	}
	return out
}
