package volume

import (
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// shownPlugin is the plugin's name in the series of operations on volumes.
func (s *Set) shownPlugin(uid types.UID, v *v1.Volume) string {
	b, _ := s.boundOf(uid, v.Name)
	return shownPlugin(v, b.Kind)
}

// shownMount is the same with the driver's name, of a volume that was made, or could not be.
func (s *Set) shownMount(uid types.UID, v *v1.Volume, made *Made) string {
	if made.pv != nil {
		name := shownPlugin(v, claims.Kind(made.pv))
		if source := made.pv.Spec.CSI; source != nil {
			return s.shownKnown(name, source.Driver)
		}
		return name
	}
	name := s.shownPlugin(uid, v)
	if v.CSI != nil {
		return s.shownInline(name, v)
	}
	if made.Path == "" {
		return name
	}
	if b, _ := s.boundOf(uid, v.Name); b.Device {
		return s.shownDriver(name, made.Path)
	}
	return s.shownDriver(name, filepath.Dir(made.Path))
}

// shownInline adds the driver's name to the plugin's, of a volume in a pod's spec.
func (s *Set) shownInline(plugin string, v *v1.Volume) string {
	if v.CSI == nil {
		return plugin
	}
	return s.shownKnown(plugin, v.CSI.Driver)
}

// shownKnown adds a driver's name to the plugin's, if there is such a driver: anybody may make
// names up.
func (s *Set) shownKnown(plugin, driver string) string {
	if d, has := s.deps.CSI.(Namer); has && d.Knows(driver) {
		return plugin + ":" + driver
	}
	return plugin
}

// shownDriver adds the driver's name to the plugin's, of a volume in a directory.
func (s *Set) shownDriver(plugin, dir string) string {
	if d, has := s.deps.CSI.(Namer); has && plugin == shownName(pluginCSI) {
		if name := d.DriverOf(dir); name != "" {
			return plugin + ":" + name
		}
	}
	return plugin
}

// isMigrated says whether a pod has a PersistentVolume, by its name, that is of before CSI, as
// far as that is kept.
func (s *Set) isMigrated(uid types.UID, pv string) bool {
	volumes, _ := names(s.claimsDir(uid))
	return slices.ContainsFunc(volumes, func(volume string) bool {
		b, kept := s.keptBound(uid, volume)
		return kept && b.PV == pv && b.Migrated
	})
}

// shownPlugin is the same; kind is that of what a claim is bound to, if it is known.
func shownPlugin(v *v1.Volume, kind string) string {
	switch {
	case kind == claims.HostPath:
		return shownName(pluginHostPath)
	case kind == claims.Local:
		return shownName(pluginLocal)
	case kind == claims.NFS:
		return shownName(pluginNFS)
	case kind == claims.ISCSI:
		return shownName(pluginISCSI)
	case kind == claims.FC:
		return shownName(pluginFC)
	case plugin(v) != "":
		return shownName(plugin(v))
	case ofClaim(v):
		return shownName(pluginCSI)
	}
	return "other"
}

// Wanted returns how many volumes the containers of this node's pods use, and Present how
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
		used := claims.Used(st.pod)
		for i := range st.pod.Spec.Volumes {
			v := &st.pod.Spec.Volumes[i]
			path, known := st.paths[v.Name]
			stands := path != "" || known && v.Image != nil // nowhere lies what no container used
			if used[v.Name] && (stands || !present) {
				out[s.shownInline(shownPlugin(v, st.bound[v.Name].Kind), v)]++
			}
		}
	}
	return out
}
