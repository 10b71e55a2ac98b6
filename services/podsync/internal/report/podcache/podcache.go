// Package podcache owns what podsync shows of itself to others: the pods with their
// status, and the table of the runtime's sandboxes and containers. Workers and
// the observer write into it, the gRPC server reads it. It must never decide
// anything, and never make a writer wait for a reader.
package podcache

import (
	"context"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Pod is one pod as podsync has it. Its pointers are shared and must not be
// changed.
type Pod struct {
	// Pod as its source gave it; for apiserver pods with the status that is there.
	Pod *v1.Pod
	// Status as podsync computed it last.
	Status v1.PodStatus
	// Static is true for pods from a file or URL.
	Static bool
	// Seen is when this process first showed the pod; Set sets it.
	Seen time.Time
}

// WithStatus returns a copy of the pod with podsync's own status.
func (p Pod) WithStatus() *v1.Pod {
	out := *p.Pod
	out.Status = p.Status
	return &out
}

// Key names a pod so that its end can be told.
type Key struct {
	UID             types.UID
	Namespace, Name string
}

// Pods is the set of pods that are shown. Safe for concurrent use.
type Pods struct {
	store *watch.Store[Key, Pod]
	// revision counts changes, each after it was made.
	revision atomic.Uint64

	mu   sync.RWMutex
	uids map[types.UID]shown
}

// shown is a pod that is shown, since when.
type shown struct {
	Key
	seen time.Time
}

// NewPods returns an empty set of a process with this epoch.
func NewPods(epoch uint64) *Pods {
	return &Pods{store: watch.NewStore[Key, Pod](epoch, nil), uids: map[types.UID]shown{}}
}

// Set shows a pod, new or changed. Pod.Pod must not be nil.
func (p *Pods) Set(pod Pod) {
	key := Key{UID: pod.Pod.UID, Namespace: pod.Pod.Namespace, Name: pod.Pod.Name}
	p.mu.Lock()
	known, ok := p.uids[key.UID]
	if !ok {
		known.seen = time.Now()
	}
	known.Key, pod.Seen = key, known.seen
	p.uids[key.UID] = known
	p.mu.Unlock()
	p.store.Set(key, pod)
	p.revision.Add(1)
}

// Version is the epoch of the process and the number of changes so far. Ask for
// it before List: what is listed then has all of these changes, and perhaps
// more. The number is never zero.
func (p *Pods) Version() (epoch, revision uint64) { return p.store.Epoch(), p.revision.Load() + 1 }

// Remove shows the pod no more.
func (p *Pods) Remove(uid types.UID) {
	p.mu.Lock()
	known, ok := p.uids[uid]
	delete(p.uids, uid)
	p.mu.Unlock()
	if ok {
		p.store.Delete(known.Key)
		p.revision.Add(1)
	}
}

// List returns all pods, sorted by UID.
func (p *Pods) List() []Pod {
	all := p.store.Snapshot()
	out := make([]Pod, 0, len(all))
	for _, pod := range all {
		out = append(out, pod)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Pod.UID < out[j].Pod.UID })
	return out
}

// Get returns the pod with this UID.
func (p *Pods) Get(uid types.UID) (Pod, bool) {
	p.mu.RLock()
	known, ok := p.uids[uid]
	p.mu.RUnlock()
	if !ok {
		return Pod{}, false
	}
	return p.store.Get(known.Key)
}

// ByName returns the pod of this name. When an old one of the name still ends,
// the one that is not terminating is meant, and of static pods that which came last.
func (p *Pods) ByName(namespace, name string) (Pod, bool) {
	p.mu.RLock()
	var keys []Key
	for _, known := range p.uids {
		if known.Name == name && known.Namespace == namespace {
			keys = append(keys, known.Key)
		}
	}
	p.mu.RUnlock()
	var best Pod
	found := false
	for _, key := range keys {
		pod, ok := p.store.Get(key)
		if !ok || found && !newer(pod, best) {
			continue
		}
		best, found = pod, true
	}
	return best, found
}

func newer(a, b Pod) bool {
	if ending := a.Pod.DeletionTimestamp != nil; ending != (b.Pod.DeletionTimestamp != nil) {
		return !ending
	}
	if a.Static && b.Static && !a.Seen.Equal(b.Seen) {
		return a.Seen.After(b.Seen) // a manifest says nothing of when, and they run one after the other
	}
	if a.Pod.CreationTimestamp.Equal(&b.Pod.CreationTimestamp) {
		return a.Pod.UID > b.Pod.UID
	}
	return b.Pod.CreationTimestamp.Before(&a.Pod.CreationTimestamp)
}

// Subscribe returns the pods as a snapshot and then changes.
func (p *Pods) Subscribe(ctx context.Context) *watch.Subscription[Key, Pod] {
	return p.store.Subscribe(ctx)
}

// Explanation is what a pod waits for and what happened to it.
type Explanation struct {
	UID             types.UID
	Namespace, Name string
	Waits           []podstate.Wait
	// Timeline, oldest first, bounded by its owner; Dropped counts what is not
	// kept any more.
	Timeline []timeline.Entry
	Dropped  int
	// Running are the steps that go on within actions.
	Running []timeline.Running
	// Gone is when nothing of the pod was left; zero while something is.
	Gone time.Time
}
