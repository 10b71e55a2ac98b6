package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

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
}

type kubeletState struct {
	Entries map[types.UID]struct {
		ContainerResources map[string]v1.ResourceRequirements
		PodLevelResources  *v1.ResourceRequirements
	} `json:"entries"`
}

// LoadAll reads what resizes of a previous run were allocated, or what a kubelet that
// kept kubeletFile had allocated before the first one. What cannot be read is said.
func (s *Store) LoadAll(log logr.Logger, kubeletFile string) {
	if err := s.Load(); err != nil {
		log.Error(err, "What resized pods were allocated is lost; they have what their statuses say, or else what their sandboxes were made with, and what their specs ask beyond that is decided on anew")
	}
	pods, err := s.Adopt(kubeletFile)
	switch {
	case err != nil:
		log.Error(err, "Nothing was taken over of what a kubelet had allocated")
	case pods > 0:
		log.Info("Took over what a kubelet had allocated", "pods", pods)
	}
}

// Adopt takes over what a kubelet had allocated, from the file of its that path
// names, when there is no state of this process's own yet; it writes that then,
// so that the file is looked at once. A file that is not there says nothing. One
// that cannot be used changes nothing and is told with what to do; it is left
// where it is, for it is not ours.
//
// Call it after Load and before the first Get and Put. It returns how many pods' were
// taken over.
func (s *Store) Adopt(path string) (pods int, err error) {
	if s == nil || s.loaded {
		return 0, nil
	}
	if pods, err = s.adopt(path); err != nil {
		s.notAdopted = true
		s.health.Set(kubeletName, false, err.Error())
	}
	return pods, err
}

func (s *Store) adopt(path string) (pods int, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var found map[types.UID]resize.Allocation
	if err == nil {
		found, err = parseKubelet(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("take over from the kubelet what pods were allocated: %s cannot be used: %w; a pod whose resize was waiting has what its spec asks for; move the file away and restart podsync so that it is not looked at again", path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, a := range found {
		s.entries[uid] = Entry{Allocation: a}
	}
	if err := s.file.Write(contents{Pods: s.entries}); err != nil {
		return 0, fmt.Errorf("keep what %s says that pods were allocated: %w; check that the disk has room", path, err)
	}
	return len(found), nil
}

// parseKubelet reads the kubelet's checkpoint. The kubelet's checksum is over
// the dump of the text.
func parseKubelet(raw []byte) (map[types.UID]resize.Allocation, error) {
	var file kubeletFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("it is not a checkpoint: %w", err)
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dump.ForHash(file.Data)))
	if want := uint64(sum.Sum32()); file.Checksum != want {
		return nil, fmt.Errorf("it is damaged: its checksum is %d, that of its text is %d", file.Checksum, want)
	}
	var state kubeletState
	if err := json.Unmarshal([]byte(file.Data), &state); err != nil {
		return nil, fmt.Errorf("what it holds cannot be read: %w", err)
	}
	out := map[types.UID]resize.Allocation{}
	for uid, e := range state.Entries {
		if uid == "" || len(e.ContainerResources) == 0 {
			continue
		}
		out[uid] = resize.From(e.ContainerResources, e.PodLevelResources)
	}
	return out, nil
}
