// Package conditions keeps since when the conditions of static pods stand, so that
// a restart of this process does not move the times: in one checkpoint file. What
// the conditions of other pods are since, the apiserver knows.
//
// It must never decide what a condition is.
package conditions

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/checkpoint"
)

// Deps are what a Keeper is given.
type Deps struct {
	// File is the checkpoint; empty keeps nothing.
	File string
	// Health is told when the file cannot be read or written; may be nil.
	Health health.Reporter
}

// condition is one of a pod, without what only explains it.
type condition struct {
	Type   v1.PodConditionType `json:"type"`
	Status v1.ConditionStatus  `json:"status"`
	Since  metav1.Time         `json:"since"`
}

// equal to the second, which is as exactly as a condition tells.
func (c condition) equal(o condition) bool {
	return c.Type == o.Type && c.Status == o.Status && c.Since.Unix() == o.Since.Unix()
}

// Keeper keeps conditions by pod. Safe for concurrent use.
type Keeper struct {
	file *checkpoint.Keeper[map[types.UID][]condition]

	mu   sync.Mutex
	pods map[types.UID][]condition
}

// New touches no file.
func New(deps Deps) *Keeper {
	k := &Keeper{pods: map[types.UID][]condition{}}
	k.file = checkpoint.New(checkpoint.Config{
		File: deps.File, What: "static pods' conditions", Health: deps.Health,
		Lost:   "Since when the conditions of static pods stand is lost; they count from now, nothing is to be done",
		Unkept: "After a restart of podsync the conditions of static pods will count from then",
	}, k.snapshot)
	return k
}

// Load reads what an earlier run of this process kept; call it before the first
// Of. A damaged file is set aside and told; the conditions then count from now.
func (k *Keeper) Load(log logr.Logger) {
	pods, ok := k.file.Load(log)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.pods, pods)
}

// Run writes changes down until ctx is done.
func (k *Keeper) Run(ctx context.Context) error { return k.file.Run(ctx) }

// snapshot is what is kept now: lists are replaced, never changed.
func (k *Keeper) snapshot() map[types.UID][]condition {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.pods)
}

// Of are a pod's conditions as they were kept, with type, status and transition
// time; nil when nothing was.
func (k *Keeper) Of(uid types.UID) []v1.PodCondition {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []v1.PodCondition
	for _, c := range k.pods[uid] {
		out = append(out, v1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.Since})
	}
	return out
}

// Set replaces what is kept of a pod; Run writes it down. DisruptionTarget says
// why a pod ends, and is not kept: without its reason it would say nothing.
func (k *Keeper) Set(uid types.UID, conditions []v1.PodCondition) {
	now := make([]condition, 0, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		if c.Type == v1.DisruptionTarget {
			continue
		}
		now = append(now, condition{Type: c.Type, Status: c.Status, Since: c.LastTransitionTime})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.EqualFunc(k.pods[uid], now, condition.equal) {
		return
	}
	k.pods[uid] = now
	k.file.Changed()
}

// Forget drops what is kept of a pod that is gone.
func (k *Keeper) Forget(uid types.UID) {
	k.Prune(func(other types.UID) bool { return other != uid })
}

// Prune drops what is kept of pods that do not exist.
func (k *Keeper) Prune(exists func(types.UID) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.pods)
	maps.DeleteFunc(k.pods, func(uid types.UID, _ []condition) bool { return !exists(uid) })
	if len(k.pods) != before {
		k.file.Changed()
	}
}
