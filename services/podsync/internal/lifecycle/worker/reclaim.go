package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// ErrNotAllKnown: not all pods of the node are known yet.
var ErrNotAllKnown = errors.New("not all pods of the node are known yet")

// removal is how long a reclaim waits for pods. What ends pods for a disk waits for it,
// and a runtime that hangs may do so for minutes.
const removal = 30 * time.Second

// justEnded is how long after its end a pod is waited for that is still being taken down,
// or of whose end nothing but the runtime knows yet: until then it keeps what it has there.
// Else whoever asks next, as soon as a pod has gone for a disk, is told that there is
// nothing to free, and another pod goes. A kubelet waits for 30 s; this is less than removal,
// so that whoever asks hears what failed.
const justEnded = 25 * time.Second

// Reclaimed is what was removed for its room.
type Reclaimed struct {
	// Removed counts containers and sandboxes.
	Removed int
	// Failed says what could not be removed and why.
	Failed []string
}

// reclaim is one call of Reclaim: each worker answers once. It has room for all answers.
type reclaim chan Reclaimed

// answer sends what a worker has to say to all that wait for it.
func answer(calls []reclaim, with Reclaimed) {
	for _, call := range calls {
		call <- with
	}
}

// Reclaim removes what has ended and that nobody needs: old instances of containers, and
// of pods that have ended all containers and sandboxes, as soon as the apiserver knows how,
// or else the disk. Who is to start again keeps its last end. It returns when that is done,
// also of pods that have justEnded, or after removal, and then what was begun goes on; what
// fails is not tried again.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#reclaim-node-resources
func (r *Registry) Reclaim(ctx context.Context) (Reclaimed, error) {
	r.mu.Lock()
	if !r.sweeping || r.closed {
		r.mu.Unlock()
		return Reclaimed{}, ErrNotAllKnown
	}
	life, call, asked := r.life, make(reclaim, len(r.pods)), 0
	for _, w := range r.pods {
		if w.working {
			asked++
			w.inbox.tell(func(in *told) { in.reclaims = append(in.reclaims, call) })
		}
	}
	r.mu.Unlock()
	var all Reclaimed
	late := time.NewTimer(removal)
	defer late.Stop()
	for left := asked; left > 0; left-- {
		select {
		case <-late.C:
			all.Failed = append(all.Failed, fmt.Sprintf("what has ended is not removed within %s of so many pods: %d; look whether the runtime hangs", removal, left))
			slices.Sort(all.Failed)
			return all, nil
		case one := <-call:
			all.Removed += one.Removed
			all.Failed = append(all.Failed, one.Failed...)
		case <-ctx.Done():
			return all, fmt.Errorf("remove what has ended: %w; what was begun goes on", context.Cause(ctx))
		case <-life.Done():
			return all, fmt.Errorf("remove what has ended: %w", context.Cause(life))
		}
	}
	slices.Sort(all.Failed)
	return all, nil
}

// removes says whether an action makes room.
func removes(k podstate.Kind) bool {
	return k == podstate.RemoveContainer || k == podstate.RemoveSandbox
}

// reclaims says whether an action is part of a reclaim, or has to be done in it before.
func reclaims(k podstate.Kind) bool {
	return removes(k) || k == podstate.KeepStatus
}

// takesDown says whether an action has to be done before one that removes.
func takesDown(k podstate.Kind) bool {
	return k == podstate.StopSandbox || k == podstate.TeardownVolumes || k == podstate.RemoveCgroup
}

// named is the pod in words.
func (w *worker) named() string {
	if pod := w.state.Pod; pod != nil {
		return pod.Namespace + "/" + pod.Name
	}
	return string(w.uid)
}

// reclaimed answers those who wait when nothing is being removed any more and nothing will
// be soon. Else it says when to look again though nothing is heard.
func (w *worker) reclaimed(out plan.Output) (again time.Time) {
	if !out.Stopped {
		w.stopped = time.Time{}
	} else if w.stopped.IsZero() {
		w.stopped = w.state.Now
	}
	if len(w.reclaims) == 0 {
		return time.Time{}
	}
	for key := range w.cancels {
		if reclaims(key.Kind) {
			return time.Time{}
		}
	}
	if until := w.stopped.Add(justEnded); w.leaves(out) && w.state.Now.Before(until) {
		return until
	}
	w.endReclaims()
	return time.Time{}
}

// leaves says whether the runtime has something of the pod, which has ended, that goes by
// itself once the rest is down. A static pod's stays while there is the pod.
func (w *worker) leaves(out plan.Output) bool {
	if !out.Stopped || w.state.Static && !w.state.Removed || !w.inRuntime() {
		return false
	}
	for key := range w.state.Failures {
		if takesDown(key.Kind) || removes(key.Kind) {
			return false
		}
	}
	return true
}

// inRuntime says whether the runtime has anything of the pod.
func (w *worker) inRuntime() bool {
	return len(w.state.Observed.Containers)+len(w.state.Observed.Sandboxes) > 0
}

// endReclaims answers those who wait.
func (w *worker) endReclaims() {
	if len(w.reclaims) > 0 {
		out := Reclaimed{Removed: w.removed}
		for key, f := range w.state.Failures {
			if removes(key.Kind) || key.Kind == podstate.KeepStatus && w.inRuntime() {
				out.Failed = append(out.Failed, fmt.Sprintf("%s %s of pod %s: %s", key.Kind, key.Object, w.named(), f.Message))
			}
		}
		answer(w.reclaims, out)
	}
	w.reclaims, w.removed = nil, 0
}
