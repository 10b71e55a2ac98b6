package allocation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// The kubelet's files: what pods are allocated, and what of it is in effect. A kubelet
// that finds nothing of a pod takes what the spec asks for as allocated, though a resize
// waits, and restarts containers whose resize policy wants it.
const (
	allocatedFile = "allocated_pods_state"
	actuatedFile  = "actuated_pods_state"
)

// handBackEvery is how often those are written at most; no pod waits for them.
const handBackEvery = time.Second

// handbackName is what health knows them as.
const handbackName = "state for a kubelet"

// handback is what is known of the kubelet's files; Run has written.
type handback struct {
	dir     string
	kept    bool // the previous run kept them
	ours    bool // that of allocations has our mark, or there was none; under mu
	unread  bool // a kubelet's cannot be used, and is to be set aside
	changed wake.Signal
	written map[string][]byte
}

// Run keeps the kubelet's files at what is kept here, until ctx is done.
func (s *Store) Run(ctx context.Context) error {
	if s.handback.dir == "" {
		<-ctx.Done()
		return nil
	}
	retry := backoff.New(backoff.Config{Initial: handBackEvery, Max: time.Minute})
	for {
		err := s.handBack()
		if err == nil {
			s.health.Set(handbackName, true, "")
		} else {
			s.health.Set(handbackName, false, fmt.Sprintf("write down for a kubelet what pods are allocated: %v; check that the disk has room and is writable; pods go on, and it is tried again", err))
		}
		s.handback.changed.Wait(ctx, retry, err != nil)
		select {
		case <-ctx.Done():
			if err := s.handBack(); err != nil { // the last word before a kubelet may come
				klog.FromContext(ctx).Error(err, "A kubelet that takes over finds what pods were allocated some time ago; one whose resize waits may be refused, and containers that a resize restarts may be")
			}
			return nil
		case <-time.After(handBackEvery):
		}
	}
}

// handBack writes what changed.
func (s *Store) handBack() error {
	if s.waitsForOwn() {
		return nil
	}
	s.mu.Lock()
	entries, changed := maps.Clone(s.entries), s.changed
	s.mu.Unlock()
	if err := s.keep(context.Background(), changed); err != nil {
		return err
	}
	allocated, actuated := kubeletState{Entries: map[types.UID]kubeletPod{}}, kubeletState{Entries: map[types.UID]kubeletPod{}}
	for uid, e := range entries {
		if e.Rest == nil {
			continue // half of what a pod has is worse than nothing
		}
		allocated.Entries[uid] = e.forKubelet(e.Allocation)
		actuated.Entries[uid] = e.forKubelet(e.inEffect()).limited()
	}
	if err := s.writeKubelet(allocatedFile, allocated); err != nil {
		return err
	}
	if err := s.writeKubelet(actuatedFile, actuated); err != nil {
		return err
	}
	return s.keepOurs()
}

// keepOurs writes down that a kubelet's file without this process's mark is newer than
// what is kept here: not before the mark is there, or one that was there before would be
// taken for that.
func (s *Store) keepOurs() error {
	s.mu.Lock()
	if s.handback.ours {
		s.mu.Unlock()
		return nil
	}
	s.handback.ours = true
	s.changed++
	mine := s.changed
	s.mu.Unlock()
	return s.keep(context.Background(), mine)
}

// waitsForOwn says whether a kubelet's file that could not be taken over still has to
// be left where it is.
func (s *Store) waitsForOwn() bool {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.notAdopted
}

func (s *Store) writeKubelet(name string, state kubeletState) error {
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	raw, err := json.Marshal(kubeletFile{Data: string(data), Checksum: kubeletChecksum(string(data)), Ours: true})
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if bytes.Equal(raw, s.handback.written[name]) {
		return nil
	}
	if s.handback.unread && name == allocatedFile {
		if _, err := fsatomic.SetAside(filepath.Join(s.handback.dir, name)); err != nil {
			return err
		}
		s.handback.unread = false
	}
	if err := fsatomic.WriteFile(filepath.Join(s.handback.dir, name), raw, 0o600); err != nil {
		return err
	}
	if s.handback.written == nil {
		s.handback.written = map[string][]byte{}
	}
	s.handback.written[name] = raw
	return nil
}

// inEffect is what the pod's containers have.
func (e Entry) inEffect() resize.Allocation {
	if e.Before != nil {
		return *e.Before
	}
	return e.Allocation
}

// forKubelet is an allocation of the pod with the rest of what it asks for.
func (e Entry) forKubelet(a resize.Allocation) kubeletPod {
	out := kubeletPod{ContainerResources: make(map[string]v1.ResourceRequirements, len(a.Containers))}
	for name, m := range a.Containers {
		out.ContainerResources[name] = requirements(m, e.Rest.Containers[name])
	}
	if a.Pod != nil {
		var rest resize.Amounts
		if e.Rest.Pod != nil {
			rest = *e.Rest.Pod
		}
		level := requirements(*a.Pod, rest)
		out.PodLevelResources = &level
	}
	return out
}

// limited is what a kubelet counts as in effect of it: a container without a limit of its
// own has the pod's.
func (k kubeletPod) limited() kubeletPod {
	if k.PodLevelResources == nil {
		return k
	}
	for name, r := range k.ContainerResources {
		for resource, limit := range k.PodLevelResources.Limits {
			if own := r.Limits[resource]; own.IsZero() && (resource == v1.ResourceCPU || resource == v1.ResourceMemory) {
				r.Limits = union(r.Limits, v1.ResourceList{resource: limit})
			}
		}
		k.ContainerResources[name] = r
	}
	return k
}

func requirements(a, b resize.Amounts) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: union(a.Requests, b.Requests), Limits: union(a.Limits, b.Limits), Claims: b.Claims}
}

func union(a, b v1.ResourceList) v1.ResourceList {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(v1.ResourceList, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
