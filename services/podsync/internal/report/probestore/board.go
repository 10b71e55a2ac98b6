package probestore

import (
	"context"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/checkpoint"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Board holds targets and results. Safe for concurrent use.
type Board struct {
	deps  Deps
	store *watch.Store[Key, Target]

	mu   sync.Mutex
	pods map[types.UID]*rows
	// kept are the results that the previous run had, until their
	// pod has targets.
	kept memory
	// failures are the ids of the containers that were found to be killed by a probe,
	// by pod and probe, until another one runs: whether one that has ended is owed a
	// start is decided from them, also by the next run.
	failures map[types.UID]map[podstate.ProbeKey]string

	file *checkpoint.Keeper[memory]
}

// rows are the targets and results of one pod.
type rows struct {
	pod     *v1.Pod
	targets map[podstate.ProbeKey]podstate.Target
	results map[podstate.ProbeKey]podstate.ProbeResult
	counts  map[podstate.ProbeKey]Count
}

// NewBoard returns an empty Board.
func NewBoard(deps Deps) *Board {
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	b := &Board{
		deps: deps, store: watch.NewStore[Key, Target](deps.Epoch, sameTarget), pods: map[types.UID]*rows{},
		failures: map[types.UID]map[podstate.ProbeKey]string{},
	}
	b.file = b.newFile()
	return b
}

func sameTarget(a, b Target) bool {
	probeA, probeB := a.Probe, b.Probe
	a.Probe, b.Probe = nil, nil
	return a == b && equality.Semantic.DeepEqual(probeA, probeB)
}

// Set replaces the targets of a pod. Targets whose container or probe the spec
// does not have are left out. Results of other container ids are dropped.
func (b *Board) Set(pod *v1.Pod, targets []podstate.Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pods[pod.UID]
	if r == nil {
		if len(targets) == 0 {
			return
		}
		r = b.openLocked(pod.UID)
	}
	specChanged := r.pod == nil || r.pod != pod
	r.pod = pod
	keep := make(map[podstate.ProbeKey]bool, len(targets))
	containers := podutil.ContainersByName(pod)
	for _, t := range targets {
		if old, ok := r.targets[t.ProbeKey]; ok && old == t && !specChanged {
			keep[t.ProbeKey] = true
			continue
		}
		c, _ := containers.Of(t.Container)
		if full, ok := resolve(pod, c, t); ok {
			keep[t.ProbeKey] = true
			b.putLocked(r, t, full)
		}
	}
	for key := range r.targets {
		if !keep[key] {
			b.drop(pod.UID, r, key)
		}
	}
	if len(r.targets) == 0 {
		delete(b.pods, pod.UID)
	}
}

// openLocked begins the rows of a pod, with the results that the previous run had.
func (b *Board) openLocked(uid types.UID) *rows {
	r := &rows{targets: map[podstate.ProbeKey]podstate.Target{}, results: b.kept.results(uid), counts: map[podstate.ProbeKey]Count{}}
	delete(b.kept, uid)
	b.pods[uid] = r
	for key, result := range r.results {
		b.failedLocked(uid, key, result)
	}
	return r
}

// putLocked sets a target. What is known of another container's probe is dropped.
func (b *Board) putLocked(r *rows, t podstate.Target, full Target) {
	uid := r.pod.UID
	if r.targets[t.ProbeKey].ContainerID != t.ContainerID {
		delete(r.counts, t.ProbeKey)
	}
	r.targets[t.ProbeKey] = t
	if r.results[t.ProbeKey].ContainerID != t.ContainerID {
		delete(r.results, t.ProbeKey)
	}
	if id, failed := b.failures[uid][t.ProbeKey]; failed && id != t.ContainerID {
		delete(b.failures[uid], t.ProbeKey)
	}
	b.store.Set(full.Key, bounded(r.pod, full))
}

func (b *Board) drop(uid types.UID, r *rows, key podstate.ProbeKey) {
	delete(r.targets, key)
	delete(r.results, key)
	delete(r.counts, key)
	b.store.Delete(Key{UID: uid, ProbeKey: key})
}

// Target returns one target as probes have it; false when there is none now.
func (b *Board) Target(key Key) (Target, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pods[key.UID]
	if r == nil {
		return Target{}, false
	}
	t, ok := r.targets[key.ProbeKey]
	if !ok {
		return Target{}, false
	}
	c, _ := podutil.Container(r.pod, t.Container)
	return resolve(r.pod, c, t)
}

// Remove drops targets and results of a pod.
func (b *Board) Remove(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.kept, uid)
	failed := len(b.failures[uid]) > 0
	delete(b.failures, uid)
	r := b.pods[uid]
	if r != nil {
		for key := range r.targets {
			b.drop(uid, r, key)
		}
		delete(b.pods, uid)
	}
	if failed || r != nil && podutil.Static(r.pod) {
		b.file.Changed()
	}
}

// Prune drops what was kept of pods that do not exist any more.
func (b *Board) Prune(exists func(types.UID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.kept)
	maps.DeleteFunc(b.kept, func(uid types.UID, _ []kept) bool { return !exists(uid) })
	if len(b.kept) != before {
		b.file.Changed()
	}
}

// Results returns the last results of a pod, those of the previous run included.
func (b *Board) Results(uid types.UID) map[podstate.ProbeKey]podstate.ProbeResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.kept.results(uid)
	if r := b.pods[uid]; r != nil {
		out = maps.Clone(r.results)
	}
	for key, id := range b.failures[uid] {
		if _, newer := out[key]; !newer {
			out[key] = podstate.ProbeResult{ContainerID: id}
		}
	}
	return out
}

// Result returns the last result of one probe.
func (b *Board) Result(key Key) (podstate.ProbeResult, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.pods[key.UID]; r != nil {
		result, ok := r.results[key.ProbeKey]
		return result, ok
	}
	return podstate.ProbeResult{}, false
}

// Count returns what speaks against the last result of one probe so far.
func (b *Board) Count(key Key) Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.pods[key.UID]; r != nil {
		return r.counts[key.ProbeKey]
	}
	return Count{}
}

// Subscribe returns the targets as a snapshot and then changes.
func (b *Board) Subscribe(ctx context.Context) *watch.Subscription[Key, Target] {
	return b.store.Subscribe(ctx)
}

// Report takes results and events of the probes process in, cut to what an honest one
// sends. What is meant for a container that is not a target any more is dropped.
func (b *Board) Report(results []Result, events []Event) {
	for _, r := range results {
		r.Message = short(r.Message, mostMessage)
		if b.take(r) && b.deps.Results != nil {
			b.deps.Results.ProbeResult(r.UID, r.ProbeKey, r.ProbeResult)
		}
	}
	if b.deps.Events == nil {
		return
	}
	for _, e := range events {
		pod := b.podOf(e.Key)
		if pod == nil {
			continue
		}
		if c, _ := podutil.Container(pod, e.Container); c != nil {
			b.deps.Events.Container(pod, c.Name, v1.EventTypeWarning, short(e.Reason, mostReason), short(e.Message, mostMessage))
		}
	}
}

// take keeps a result and says whether it is new or changed.
func (b *Board) take(r Result) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	pod := b.pods[r.UID]
	if pod == nil {
		return false
	}
	target, ok := pod.targets[r.ProbeKey]
	if !ok || target.ContainerID != r.ContainerID {
		return false
	}
	if pod.counts[r.ProbeKey] = r.Count; !r.Known {
		return false
	}
	old, had := pod.results[r.ProbeKey]
	pod.results[r.ProbeKey] = r.ProbeResult
	if changed := !had || old.Success != r.Success || old.ContainerID != r.ContainerID; changed && (b.failedLocked(r.UID, r.ProbeKey, r.ProbeResult) || podutil.Static(pod.pod)) {
		b.file.Changed()
	}
	return !had || old != r.ProbeResult
}

func (b *Board) podOf(key Key) *v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.pods[key.UID]; r != nil {
		return r.pod
	}
	return nil
}
