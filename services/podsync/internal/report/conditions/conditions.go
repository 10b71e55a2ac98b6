// Package conditions keeps since when the conditions of static pods stand, so that
// a restart of this process does not move the times: in one checkpoint file. What
// the conditions of other pods are since, the apiserver knows.
//
// It must never decide what a condition is.
package conditions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/health"
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
	deps    Deps
	changed chan struct{} // wakes Run

	mu   sync.Mutex
	pods map[types.UID][]condition
}

// New touches no file.
func New(deps Deps) *Keeper {
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	return &Keeper{deps: deps, changed: make(chan struct{}, 1), pods: map[types.UID][]condition{}}
}

const healthName = "static pods' conditions"

// Load reads what an earlier life of this process kept; call it before the first
// Of. A damaged file is set aside and told; the conditions then count from now.
func (k *Keeper) Load(log logr.Logger) {
	if k.deps.File == "" {
		return
	}
	pods, err := fsatomic.NewCheckpoint[map[types.UID][]condition](k.deps.File).Read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return
	case err != nil:
		log.Error(err, "Since when the conditions of static pods stand is lost; they count from now, nothing is to be done")
		k.deps.Health.Set(healthName, false, err.Error())
		k.wake() // a sound one takes its place
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.pods, pods)
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
	k.wake()
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
		k.wake()
	}
}

func (k *Keeper) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// saveAgain is how long after a failure it is tried again to write.
const saveAgain = 30 * time.Second

// Run writes changes down until ctx is done. What cannot be written, on a full
// disk say, is tried again until it can.
func (k *Keeper) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-again:
		}
		if k.deps.File == "" {
			continue
		}
		err := k.save()
		if err == nil {
			again = nil
			k.deps.Health.Set(healthName, true, "")
			continue
		}
		if again == nil {
			log.Error(err, "After a restart of podsync the conditions of static pods will count from then; it is tried again", "every", saveAgain.String())
		}
		again = time.After(saveAgain)
		k.deps.Health.Set(healthName, false, err.Error())
	}
}

func (k *Keeper) save() error {
	k.mu.Lock()
	pods := maps.Clone(k.pods) // lists are replaced, never changed
	k.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(k.deps.File), 0o750); err != nil {
		return fmt.Errorf("keep the conditions of static pods: %w; check that the disk is writable", err)
	}
	if err := fsatomic.NewCheckpoint[map[types.UID][]condition](k.deps.File).Write(pods); err != nil {
		return fmt.Errorf("keep the conditions of static pods in %s: %w; check that the disk has room", k.deps.File, err)
	}
	return nil
}
