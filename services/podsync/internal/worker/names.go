package worker

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/plan"
)

// apiSource is the source whose pods have unique names by themselves.
const apiSource = "api"

// hold keeps a static pod back while an earlier one of its name has not ended:
// they run one after the other. The lock is held.
func (r *Registry) hold(w *worker) {
	if w.source == apiSource {
		return
	}
	for _, other := range r.workers {
		if other != w && other.pod != nil && other.source != apiSource && other.seq < w.seq &&
			other.pod.Name == w.pod.Name && other.pod.Namespace == w.pod.Namespace {
			w.held = true
			return
		}
	}
	w.held = false
}

// finished takes a worker out that is done. It says whether the worker's end
// stands: what came meanwhile makes a new worker.
func (r *Registry) finished(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, w.uid)
	r.deps.Mirrors.Ended(w.uid)
	r.deps.Timelines.Close(w.uid)
	if w.pod != nil && !w.gone {
		r.ended[w.uid] = true
	}
	r.deps.Status.Forget(w.uid)
	r.deps.Probes.Remove(w.uid)
	r.deps.Pods.Remove(w.uid)
	r.deps.Allocations.Forget(w.uid)
	r.deps.Standing.Forget(w.uid)
	r.settle(nil, triggerRemoved)
	if r.deps.Released != nil {
		r.deps.Released(w.uid)
	}
	if o, ok := r.observed[w.uid]; ok && w.again == nil && len(o.Sandboxes)+len(o.Containers) > 0 {
		r.orphan(w.uid)
	}
	if w.again != nil {
		next := r.add(w.uid)
		next.pod, next.source = w.again, w.againSource
		next.in.pod = w.again
		r.deps.Metrics.restarted(w.againSource != apiSource)
		r.hold(next)
		r.start(next)
	}
	for _, other := range r.workers {
		switch {
		case other.held:
			if r.hold(other); !other.held {
				other.tell(func(*inbox) {})
			}
		case other.admission == plan.AdmissionPending:
			other.tell(func(*inbox) {})
		}
	}
}

// note keeps what admission of others needs to know.
func (r *Registry) note(w *worker, stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.stopped == stopped {
		return
	}
	w.stopped = stopped
	if stopped {
		r.deps.Mirrors.Ended(w.uid)
		r.settle(nil, triggerRemoved)
	}
	if stopped {
		r.askAgain()
	}
}

// askAgain lets pods that wait for admission ask again. The lock is held.
func (r *Registry) askAgain() {
	for _, other := range r.workers {
		if other.admission == plan.AdmissionPending && !other.held {
			other.tell(func(*inbox) {})
		}
	}
}

// ProbeResult takes in what a probe found.
func (r *Registry) ProbeResult(uid types.UID, key plan.ProbeKey, result plan.ProbeResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.workers[uid]; w != nil {
		w.tell(func(in *inbox) {
			if in.probes == nil {
				in.probes = map[plan.ProbeKey]plan.ProbeResult{}
			}
			in.probes[key] = result
		})
	}
}

// ObjectsChanged says that objects changed that these pods refer to: what
// failed may work now.
func (r *Registry) ObjectsChanged(uids []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		if w := r.workers[uid]; w != nil {
			w.tell(func(in *inbox) { in.objects = true })
		}
	}
}

// Pod is the newest object of a pod that a source wants.
func (r *Registry) Pod(uid types.UID) (*v1.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[uid]
	if w == nil || w.pod == nil {
		return nil, false
	}
	return w.pod, true
}
