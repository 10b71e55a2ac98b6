package volume

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// bound is what a volume of a pod comes of, by its claim. It is kept beside the pod's
// volumes from before anything is mounted: without the apiserver nothing else says
// which volume it is.
type bound struct {
	Claim string `json:"claim"`
	// PV is the PersistentVolume's name, and Kind the field of its source.
	PV string `json:"pv"`
	// Called is what people know it by, where that is another name.
	Called string `json:"called,omitempty"`
	Kind   string `json:"kind"`
	// Path is where it lies on the host.
	Path string `json:"path"`
	// Device: it is a link to a device.
	Device bool `json:"device,omitempty"`
	// Group is the group whose members may use it; nil for none.
	Group *int64 `json:"group,omitempty"`
	// Begun: it was not all done yet what has to be before the pod may use it, though
	// something may lie there.
	Begun bool `json:"begun,omitempty"`
	// Served: it is a local one that lies with a server, which may not answer.
	Served bool `json:"served,omitempty"`
	// Labelled: it is mounted with the SELinux label of its pod.
	Labelled bool `json:"labelled,omitempty"`
	// Migrated: it is of before CSI.
	Migrated bool `json:"migrated,omitempty"`

	// fresh: it was set up by this process.
	fresh bool
	// global is where a disk is shown as a device for all pods.
	global string
}

// claimsDir holds a pod's bounds, by volume, below its plugins.
const claimsDir = "polylet~claims"

func (s *Set) claimsDir(uid types.UID) string {
	return filepath.Join(s.podDir(uid), pluginsDir, claimsDir)
}

func (s *Set) boundFile(uid types.UID, volume string) string {
	return filepath.Join(s.claimsDir(uid), volume)
}

// keptBound is what was kept of a pod's volume; false when nothing was, or nothing that
// can be read.
func (s *Set) keptBound(uid types.UID, volume string) (b bound, kept bool) {
	text, err := os.ReadFile(s.boundFile(uid, volume))
	return b, err == nil && json.Unmarshal(text, &b) == nil && b.Path != ""
}

// allBound is what is known, or was kept, of all volumes of claims of a pod.
func (s *Set) allBound(uid types.UID) map[string]bound {
	all := map[string]bound{}
	volumes, _ := names(s.claimsDir(uid)) // what cannot be read is not known
	for _, volume := range volumes {
		if b, kept := s.keptBound(uid, volume); kept {
			all[volume] = b
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.pods[uid]; st != nil {
		maps.Copy(all, st.left)
		maps.Copy(all, st.bound)
	}
	return all
}

// keepBound keeps it, and writes nothing when it is kept already: the first set-up after a
// start finds what a previous run has kept.
func (s *Set) keepBound(uid types.UID, volume string, b bound) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if is, err := os.ReadFile(s.boundFile(uid, volume)); err == nil && bytes.Equal(is, text) {
		return nil
	}
	if err := makeDir(s.claimsDir(uid), 0o750); err != nil {
		return err
	}
	return fsatomic.WriteFile(s.boundFile(uid, volume), text, 0o640)
}

// standing is where a volume lies that a previous run has set up; empty when it has not.
func (s *Set) standing(uid types.UID, volume string, b bound, known bool) string {
	if !known || b.Begun || !s.lies(b) {
		return ""
	}
	b.fresh = false
	s.setBound(uid, volume, b)
	return b.Path
}

// lies says whether something is where a volume is to lie.
func (s *Set) lies(b bound) bool {
	switch {
	case b.Device:
		_, err := os.Stat(b.Path)
		return err == nil
	case b.Kind != claims.HostPath:
		mounted, err := s.deps.Mounter.Mounted(b.Path)
		return err == nil && mounted
	}
	return true
}

func (s *Set) boundOf(uid types.UID, volume string) (bound, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.pods[uid]; st != nil {
		b, known := st.bound[volume]
		return b, known
	}
	return bound{}, false
}

func (s *Set) setBound(uid types.UID, volume string, b bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.pods[uid]; st != nil {
		st.bound[volume] = b
	}
}

// usedElsewhere says whether another pod has been given a volume, also by a previous run
// and by another node agent, from what is on the disk.
func (s *Set) usedElsewhere(pv *v1.PersistentVolume, than types.UID) (bool, error) {
	return s.elsewhere(than, func(uid types.UID) (bool, error) {
		if found, err := s.hasDirOf(uid, pv); found || err != nil {
			return found, err
		}
		volumes, err := names(s.claimsDir(uid))
		return slices.ContainsFunc(volumes, func(volume string) bool {
			b, kept := s.keptBound(uid, volume)
			return kept && b.PV == pv.Name
		}), err
	})
}

// hasDirOf says whether a pod has what a volume of a claim lies in: nothing else is known of
// one that another node agent has set up. A volume in the pod's own spec may be called like it,
// and those of one kind lie beside each other.
func (s *Set) hasDirOf(uid types.UID, pv *v1.PersistentVolume) (bool, error) {
	of := pluginOf(claims.Kind(pv))
	if of == "" {
		return false, nil
	}
	dirs := []string{s.deviceLink(uid, of, pv.Name)}
	if dir := s.volumeDir(uid, of, pv.Name); !s.hasOwn(uid, pv.Name, of) && !(of == pluginCSI && isEphemeral(dir)) {
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		if there, err := isThere(dir); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// isEphemeral says whether a CSI driver's volume, by what lies beside it, is in the own spec of
// its pod: of one that is gone nobody knows the spec.
func isEphemeral(dir string) bool {
	f, err := beneath.Open(dir, filepath.Join(dir, "vol_data.json"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var kept struct{ VolumeLifecycleMode storagev1.VolumeLifecycleMode }
	err = json.NewDecoder(io.LimitReader(f, mostOfVolumeData)).Decode(&kept)
	return err == nil && kept.VolumeLifecycleMode == storagev1.VolumeLifecycleEphemeral
}

// mostOfVolumeData is how much is read of what lies beside a CSI driver's volume.
const mostOfVolumeData = 64 << 10

// hasOwn says whether a volume of a pod that has a name, and lies with those of a plugin, is
// in the pod's own spec, as far as that is known.
func (s *Set) hasOwn(uid types.UID, name, of string) bool {
	pod := s.specOf(uid)
	return pod != nil && slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == name && plugin(&v) == of
	})
}

// specOf is a pod that is known; nil when it is not. After a restart others know it before its
// volumes are set up.
func (s *Set) specOf(uid types.UID) *v1.Pod {
	var pod *v1.Pod
	s.mu.Lock()
	if st := s.pods[uid]; st != nil {
		pod = st.pod
	}
	s.mu.Unlock()
	if pod != nil || s.deps.Spec == nil {
		return pod
	}
	return s.deps.Spec(uid)
}

// pluginOf is the plugin whose directories those of claims' volumes of a kind are; empty when
// they have none.
func pluginOf(kind string) string {
	switch kind {
	case claims.CSI:
		return pluginCSI
	case claims.Local:
		return pluginLocal
	case claims.NFS:
		return pluginNFS
	case claims.ISCSI:
		return pluginISCSI
	case claims.FC:
		return pluginFC
	}
	return ""
}

// mountedElsewhere says whether another pod has a local volume mounted.
func (s *Set) mountedElsewhere(pv string, than types.UID) (bool, error) {
	return s.elsewhere(than, func(uid types.UID) (bool, error) { return s.deps.Mounter.Mounted(s.volumeDir(uid, pluginLocal, pv)) })
}

// elsewhere says whether something is so of another pod that has a directory.
func (s *Set) elsewhere(than types.UID, is func(types.UID) (bool, error)) (bool, error) {
	uids, err := s.OnDisk()
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		if uid == than {
			continue
		}
		if yes, err := is(uid); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}

// KeepsLabels says whether the files of a claim's volume keep the SELinux labels that they
// have: they are the host's or a server's, which the node leaves as they are, or all are
// shown with the label of the pod.
func (s *Set) KeepsLabels(uid types.UID, volume string) bool {
	b, known := s.boundOf(uid, volume)
	return known && (b.Kind == claims.HostPath || b.Kind == claims.NFS || b.Labelled)
}

// boundToHost says whether a claim's volume is a path of the host's.
func (s *Set) boundToHost(uid types.UID, volume string) bool {
	b, known := s.boundOf(uid, volume)
	return known && b.Kind == claims.HostPath
}

// Groups are the groups whose members may use the pod's volumes, beside those that its
// spec names; sorted.
func (s *Set) Groups(uid types.UID) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil {
		return nil
	}
	var list []int64
	for _, b := range st.bound {
		if b.Group != nil {
			list = append(list, *b.Group)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
