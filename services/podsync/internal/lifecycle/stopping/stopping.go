// Package stopping keeps what of a pod's end the apiserver does not know yet, so that it
// outlives a crash: that the node has decided to end the pod for a reason of its own, and
// how; and the status it has ended with, where the runtime is to forget it before the
// apiserver knows. In one checkpoint file.
//
// It must never decide that a pod is ended.
package stopping

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Deps are what a Keeper is given.
type Deps struct {
	// File is the checkpoint; empty keeps nothing.
	File string
	// Health is told when the file cannot be read or written; may be nil.
	Health health.Reporter
}

// entry is what the file has of one pod.
type entry struct {
	// Reason is empty where the node has not decided anything.
	Reason       string           `json:"reason"`
	Message      string           `json:"message,omitempty"`
	Signal       string           `json:"signal,omitempty"`
	ByContainers bool             `json:"byContainers,omitempty"`
	GraceSeconds *int64           `json:"graceSeconds,omitempty"`
	Condition    *v1.PodCondition `json:"condition,omitempty"`
	// Last is the status that the pod has ended with.
	Last *v1.PodStatus `json:"lastStatus,omitempty"`
}

// Keeper keeps decisions by pod. Safe for concurrent use.
type Keeper struct {
	deps Deps
	file *fsatomic.Checkpoint[map[types.UID]entry]
	// dropped wakes Run.
	dropped wake.Signal
	// writeFile writes the file.
	writeFile func(map[types.UID]entry) error
	// turn lets one write at a time; what one has written others need not.
	turn chan struct{}

	mu               sync.Mutex
	pods             map[types.UID]entry
	changed, written uint64
}

// New touches no file.
func New(deps Deps) *Keeper {
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	file := fsatomic.NewCheckpoint[map[types.UID]entry](deps.File)
	return &Keeper{
		deps: deps, file: file, writeFile: file.Write,
		dropped: wake.New(), turn: make(chan struct{}, 1), pods: map[types.UID]entry{},
	}
}

const healthName = "pods that the node ends"

// Load reads what a previous run kept; call it before the first
// Of. A damaged file is set aside and told.
func (k *Keeper) Load(log logr.Logger) {
	if k.deps.File == "" {
		return
	}
	pods, err := k.file.Read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return
	case err != nil:
		log.Error(err, "Which pods the node was ending is lost: one whose end the apiserver does not know may go on; look for pods that should have been evicted")
		k.deps.Health.Set(healthName, false, err.Error())
		k.drop() // a sound one takes its place
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.pods, pods)
}

// Of is the decision to end a pod; nil when there is none.
func (k *Keeper) Of(uid types.UID) *podstate.Stop {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.pods[uid]
	if !e.decided() {
		return nil
	}
	stop := e.stop()
	return &stop
}

// Last is the status that a pod has ended with; nil when none is kept.
func (k *Keeper) Last(uid types.UID) *v1.PodStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[uid].Last.DeepCopy()
}

// decided says whether the node ends the pod.
func (e *entry) decided() bool {
	return e.Reason != ""
}

func (e *entry) stop() podstate.Stop {
	return podstate.Stop{Reason: e.Reason, Message: e.Message, Signal: e.Signal, ByContainers: e.ByContainers, GraceSeconds: e.GraceSeconds, Condition: e.Condition}
}

// Put keeps a decision. When it returns nil, a crash does not lose it. Of a pod that is
// ended already it keeps a shorter grace period alone: the first reason stands.
func (k *Keeper) Put(ctx context.Context, uid types.UID, stop podstate.Stop) error {
	k.mu.Lock()
	first := k.pods[uid]
	if first.decided() {
		stop = first.stop().Hastened(stop)
	}
	k.pods[uid] = entry{stop.Reason, stop.Message, stop.Signal, stop.ByContainers, stop.GraceSeconds, stop.Condition, first.Last}
	mine := k.changeLocked()
	k.mu.Unlock()
	if err := k.write(ctx, mine); err != nil {
		return fmt.Errorf("keep that pod %s is ended: %w", uid, err)
	}
	return nil
}

// PutLast keeps the status that a pod has ended with. When it returns nil, a crash does
// not lose it.
func (k *Keeper) PutLast(ctx context.Context, uid types.UID, status *v1.PodStatus) error {
	k.mu.Lock()
	e := k.pods[uid]
	e.Last = status.DeepCopy()
	k.pods[uid] = e
	mine := k.changeLocked()
	k.mu.Unlock()
	if err := k.write(ctx, mine); err != nil {
		return fmt.Errorf("keep how pod %s has ended: %w", uid, err)
	}
	return nil
}

// changeLocked counts a change, for whoever writes it down.
func (k *Keeper) changeLocked() uint64 {
	k.changed++
	return k.changed
}

// Withdraw drops a decision that came too late; how the pod has ended stays. Run writes
// it down.
func (k *Keeper) Withdraw(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.pods[uid]
	switch {
	case !ok:
		return
	case e.Last == nil:
		delete(k.pods, uid)
	default:
		k.pods[uid] = entry{Last: e.Last}
	}
	k.changed++
	k.drop()
}

// Forget drops what is kept of a pod whose end is known or that is gone; Run
// writes it down.
func (k *Keeper) Forget(uid types.UID) {
	k.Prune(func(other types.UID) bool { return other != uid })
}

// Prune drops the decisions on pods that do not exist.
func (k *Keeper) Prune(exists func(types.UID) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.pods)
	maps.DeleteFunc(k.pods, func(uid types.UID, _ entry) bool { return !exists(uid) })
	if len(k.pods) != before {
		k.changed++
		k.drop()
	}
}

func (k *Keeper) drop() {
	k.dropped.Set()
}

// writeAgain is how long after a failure it is tried again to write.
const writeAgain = 30 * time.Second

// Run writes down what is dropped until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.dropped:
		case <-again:
		}
		again = nil
		k.mu.Lock()
		newest := k.changed
		k.mu.Unlock()
		if err := k.write(ctx, newest); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "A decision to end a pod that is over stays in the file; it is tried again", "every", writeAgain.String())
			again = time.After(writeAgain)
		}
	}
}

// write writes all down unless a change as new as this one has been. A disk that hangs
// is not waited for beyond ctx; who comes then waits for its turn.
func (k *Keeper) write(ctx context.Context, change uint64) error {
	if k.deps.File == "" {
		return nil
	}
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-k.turn }()
		done <- k.writeNow(change)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write %s: %w; the disk does not answer", k.deps.File, context.Cause(ctx))
	}
}

// writeNow is for whose turn it is.
func (k *Keeper) writeNow(change uint64) error {
	k.mu.Lock()
	if k.written >= change && change > 0 {
		k.mu.Unlock()
		return nil // another's write had it too
	}
	pods, upTo := maps.Clone(k.pods), k.changed
	k.mu.Unlock()
	err := os.MkdirAll(filepath.Dir(k.deps.File), 0o750)
	if err == nil {
		err = k.writeFile(pods)
	}
	if err != nil {
		k.deps.Health.Set(healthName, false, err.Error())
		return fmt.Errorf("write %s: %w; check that the disk has room", k.deps.File, err)
	}
	k.deps.Health.Set(healthName, true, "")
	k.mu.Lock()
	k.written = upTo
	k.mu.Unlock()
	return nil
}
