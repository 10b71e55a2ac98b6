package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// countable says whether a volume may be measured by a quota: an emptyDir on the disk of a pod
// that has a user namespace of its own. From any other its containers could lead what they
// write out of the project.
func countable(pod *v1.Pod, v *v1.Volume) bool {
	own := pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
	return own && v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// counts says whether the gate is on: with it off what has a project is walked, too.
func (s *Set) counts() bool { return s.cfg.ProjectQuotas && s.deps.Projects != nil }

// giveProject gives a new emptyDir a project of its own, if its filesystem counts by these; 0
// is none. What cannot have one is walked, and no reason for a pod to wait.
func (s *Set) giveProject(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) uint32 {
	if !s.counts() || !countable(pod, v) {
		return 0
	}
	id, err := s.deps.Projects.Give(dir)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("An emptyDir is measured by walking, it has no project quota", "pod", klog.KObj(pod), "volume", v.Name, "err", err)
		return 0
	}
	return id
}

// projectWord begins what the ready file of an emptyDir says that had a project before
// anything could be in it: what another agent gives one later counts too little.
const projectWord = "project "

// writeReady says that an emptyDir is complete.
func writeReady(ready string, project uint32) error {
	if err := os.MkdirAll(filepath.Dir(ready), 0o750); err != nil {
		return err
	}
	if project == 0 {
		return os.WriteFile(ready, nil, 0o640)
	}
	return fsatomic.WriteFile(ready, fmt.Appendf(nil, "%s%d\n", projectWord, project), 0o640)
}

// keptProject is the project that an emptyDir has had from its beginning; 0 is none.
func (s *Set) keptProject(uid types.UID, name string) uint32 {
	f, err := os.Open(s.readyFile(uid, name))
	if err != nil {
		return 0
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	word, is := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), projectWord)
	id, parseErr := strconv.ParseUint(word, 10, 32)
	if !is || errors.Join(err, parseErr) != nil {
		return 0
	}
	return uint32(id)
}

// projectOf is that by which a volume of a pod is counted; 0: it is not.
func (s *Set) projectOf(pod *v1.Pod, v *v1.Volume) uint32 {
	if !s.counts() || !countable(pod, v) {
		return 0
	}
	return s.keptProject(pod.UID, v.Name)
}

// counted is what is in an emptyDir by its quota; false: it has none. It goes by the disk,
// and so answers also before a new podsync has come to the pod.
func (s *Set) counted(uid types.UID, name string) (usage Usage, is bool, err error) {
	if !s.counts() || errors.Join(component("pod UID", string(uid)), component("volume name", name)) != nil {
		return Usage{}, false, nil
	}
	project := s.keptProject(uid, name)
	if project == 0 || !s.mayBeCounted(uid, name) {
		return Usage{}, false, nil
	}
	has, err := s.deps.Projects.Usage(s.volumeDir(uid, pluginEmptyDir, name), project)
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, false, nil
	}
	if err != nil {
		return Usage{}, true, fmt.Errorf("volume %q of the pod with UID %s: %w", name, uid, err)
	}
	return Usage{Driver: shownName(pluginEmptyDir), Used: has.Bytes, InodesUsed: has.Inodes}, true, nil
}

// mayBeCounted says whether a volume may, as far as its pod is known.
func (s *Set) mayBeCounted(uid types.UID, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil || st.pod == nil {
		return true
	}
	v := podutil.Volume(st.pod, name)
	return v != nil && countable(st.pod, v)
}
