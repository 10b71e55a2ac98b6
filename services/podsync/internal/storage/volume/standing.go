package volume

import (
	"cmp"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// Progress is how far a volume is.
type Progress int

// The ways a volume can stand.
const (
	// Waiting: it is to be set up.
	Waiting Progress = iota
	// Present: it is set up.
	Present
	// Unused: no container uses it, so that it is not set up.
	Unused
	// Going: it is being taken down.
	Going
	// Gone: it is taken down.
	Gone
)

// Standing is how a volume of a pod's spec stands.
type Standing struct {
	Name string
	// Plugin is its name in the kubelet's words, and Driver the CSI driver's as far as that
	// is known.
	Plugin, Driver string
	// Claim and PV are of a claim's volume, PV as far as it is known.
	Claim, PV string
	// Path is where it lies on the host; empty where it does not, and for what the runtime
	// mounts.
	Path string
	// Device: it is a block device, and Path a link to it.
	Device bool
	// Project is that by whose quota it is measured; 0: it is not.
	Project  uint32
	Progress Progress
	// Dir is what its directory is called, and so it in all that is told of its end; empty
	// before that, and where it has none.
	Dir string
}

// Standings says how all volumes of a pod's spec stand, in its order. ended: the pod needs
// none any more. Nobody is asked.
func (s *Set) Standings(pod *v1.Pod, ended bool) []Standing {
	used := claims.Used(pod)
	list := make([]Standing, 0, len(pod.Spec.Volumes))
	s.mu.Lock()
	st := s.pods[pod.UID]
	for i := range pod.Spec.Volumes {
		list = append(list, s.standingOf(st, pod.UID, &pod.Spec.Volumes[i], used[pod.Spec.Volumes[i].Name], ended))
	}
	s.mu.Unlock()
	for i := range list {
		list[i].Claim = claimOf(pod, &pod.Spec.Volumes[i])
		list[i].Driver = cmp.Or(list[i].Driver, s.driverName(&pod.Spec.Volumes[i], list[i]))
	}
	return list
}

// standingOf is one of Standings, of a state that may be nil. The caller has Set.mu.
func (s *Set) standingOf(st *podState, uid types.UID, v *v1.Volume, used, ended bool) Standing {
	one := Standing{Name: v.Name, Plugin: shownPlugin(v, "")}
	known := false
	if st != nil {
		b := st.bound[v.Name]
		one.Plugin, one.PV, one.Device = shownPlugin(v, b.Kind), cmp.Or(b.Called, b.PV), b.Device
		one.Path, known = st.paths[v.Name]
		one.Project = st.projects[v.Name]
	}
	switch {
	case one.Path != "" || known && v.Image != nil:
		one.Progress = Present
	case !used:
		one.Progress = Unused
	case st != nil && st.ending:
		s.leavingOf(st, uid, v, &one)
	case ended && st == nil:
		one.Progress = Gone
	}
	return one
}

// leavingOf says how a volume stands whose pod's are taken down: what was known of it before,
// and whether it is gone already. The caller has Set.mu.
func (s *Set) leavingOf(st *podState, uid types.UID, v *v1.Volume, one *Standing) {
	one.Progress = Going
	b, known := st.left[v.Name]
	dir := s.volumeDir(uid, plugin(v), v.Name)
	switch {
	case known && b.Device:
		dir = s.deviceLink(uid, pluginOf(b.Kind), b.PV)
	case known:
		dir = s.volumeDir(uid, pluginOf(b.Kind), b.PV)
	case ofClaim(v):
		return // another agent may have set it up
	}
	if known {
		one.Plugin, one.PV, one.Device = shownPlugin(v, b.Kind), cmp.Or(b.Called, b.PV), b.Device
	}
	one.Dir = filepath.Base(dir)
	at, found := st.onWay[dir]
	_, one.Driver, _ = strings.Cut(at.plugin, ":")
	if st.onWay != nil && (!found || at.gone) {
		one.Progress = Gone
	}
}

func claimOf(pod *v1.Pod, v *v1.Volume) string {
	if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
		return ""
	}
	ref, _ := claims.Of(pod, v)
	return ref.Name
}

// driverName is the name of the CSI driver of a volume, as far as it is known.
func (s *Set) driverName(v *v1.Volume, one Standing) string {
	if v.CSI != nil {
		return v.CSI.Driver
	}
	d, has := s.deps.CSI.(Namer)
	switch {
	case !has || one.Path == "" || one.Plugin != shownName(pluginCSI):
		return ""
	case one.Device:
		return d.DriverOf(one.Path)
	}
	return d.DriverOf(filepath.Dir(one.Path))
}
