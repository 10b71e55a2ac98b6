package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"

	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// kubeletFile is the kubelet's checkpoint of what pods are allocated: a document
// in a document, and a checksum of its text.
// Source: the files that a kubelet 1.36 writes.
type kubeletFile struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
	// Ours says that no kubelet has written it since; a kubelet does not know the field.
	Ours bool `json:"polylet,omitempty"`
}

type kubeletState struct {
	Entries map[types.UID]kubeletPod `json:"entries,omitempty"`
}

type kubeletPod struct {
	ContainerResources map[string]v1.ResourceRequirements
	PodLevelResources  *v1.ResourceRequirements
}

// LoadAll reads what resizes of a previous run were allocated, and what a kubelet has
// allocated that ran since; its files are in dir. What cannot be read is said.
func (s *Store) LoadAll(log logr.Logger, dir string) {
	s.handback.dir = dir
	if err := s.Load(); err != nil {
		log.Error(err, "What resized pods were allocated is lost; they have what their statuses say, or else what their sandboxes were made with, and what their specs ask beyond that is decided on anew")
	}
	pods, err := s.Adopt(filepath.Join(dir, allocatedFile))
	switch {
	case err != nil:
		log.Error(err, "Nothing was taken over of what a kubelet had allocated")
	case pods > 0:
		log.Info("Took over what the kubelet's file says to be allocated", "pods", pods)
	}
}

// Adopt takes over what a kubelet had allocated, from the file of its that path names,
// where this process has kept nothing, or somebody has removed that, and when a kubelet
// has written it since: it is without this process's mark then. It writes down what it
// took over. A file that is not there says nothing. One that cannot be used changes
// nothing and is told with what to do; it is left where it is, for it is not ours.
//
// Call it after Load and before the first Get and Put. It returns how many pods' were
// taken over.
func (s *Store) Adopt(path string) (pods int, err error) {
	if s == nil {
		return 0, nil
	}
	if s.loaded && !s.handback.kept {
		return s.completeFrom(path), nil
	}
	if pods, err = s.adopt(path); err != nil {
		s.notAdopted, s.handback.unread = true, true
		s.health.Set(kubeletName, false, err.Error())
	}
	return pods, err
}

func (s *Store) adopt(path string) (pods int, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		s.handback.ours = true
		return 0, nil
	}
	var found kubeletState
	var ours bool
	if err == nil {
		found, ours, err = parseKubelet(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("take over from the kubelet what pods were allocated: %s cannot be used: %w; a pod whose resize was waiting has what its spec asks for; move the file away and restart podsync so that it is not looked at again", path, err)
	}
	if s.handback.ours = ours; ours && s.loaded && !s.spoiled {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, k := range found.Entries {
		if uid != "" && len(k.ContainerResources) > 0 && !s.entries[uid].agrees(k) {
			rest := resize.RestFrom(k.ContainerResources, k.PodLevelResources)
			s.entries[uid] = Entry{Allocation: resize.From(k.ContainerResources, k.PodLevelResources), Rest: &rest}
			pods++
		}
	}
	if err := s.file.Write(contents{Pods: s.entries, Lost: s.lost, HandsBack: ours}); err != nil {
		return 0, fmt.Errorf("keep what %s says that pods were allocated: %w; check that the disk has room", path, err)
	}
	return pods, nil
}

// completeFrom adds what an earlier release did not keep: the rest of what pods ask for,
// which never changes, from a kubelet's file of any age; and what a damaged file had
// kept, from the one that this process wrote for a kubelet.
func (s *Store) completeFrom(path string) (pods int) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	state, ours, err := parseKubelet(raw)
	if err != nil {
		s.handback.unread = true
		return 0
	}
	if ours && s.spoiled {
		pods, _ = s.adopt(path) // when the disk takes no file, Load has told that
		return pods
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.entries {
		if k, there := state.Entries[uid]; there && e.Rest == nil {
			rest := resize.RestFrom(k.ContainerResources, k.PodLevelResources)
			e.Rest = &rest
			s.entries[uid] = e
		}
	}
	return 0
}

// agrees says whether a kubelet had allocated the same. It leaves out containers that
// cannot be resized.
func (e Entry) agrees(k kubeletPod) bool {
	theirs := resize.From(k.ContainerResources, k.PodLevelResources)
	mine := resize.Allocation{Containers: maps.Clone(e.Containers), Pod: e.Pod}
	maps.DeleteFunc(mine.Containers, func(name string, _ resize.Amounts) bool { _, there := theirs.Containers[name]; return !there })
	return mine.Equal(theirs)
}

// parseKubelet reads the kubelet's checkpoint; ours says that this process wrote it.
func parseKubelet(raw []byte) (state kubeletState, ours bool, err error) {
	var file kubeletFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return kubeletState{}, false, fmt.Errorf("it is not a checkpoint: %w", err)
	}
	if want := kubeletChecksum(file.Data); file.Checksum != want {
		return kubeletState{}, false, fmt.Errorf("it is damaged: its checksum is %d, that of its text is %d", file.Checksum, want)
	}
	if err := json.Unmarshal([]byte(file.Data), &state); err != nil {
		return kubeletState{}, false, fmt.Errorf("what it holds cannot be read: %w", err)
	}
	return state, file.Ours, nil
}

// kubeletChecksum is the kubelet's, which is over the dump of the text.
func kubeletChecksum(data string) uint64 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dump.ForHash(data)))
	return uint64(sum.Sum32())
}
