package worker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// apiSource is the source whose pods have unique names by themselves.
const apiSource = "api"

// holdLocked keeps a static pod back while an earlier one of its name has not ended: they
// run one after the other. That the runtime cannot remove what has ended keeps nobody
// back. The earlier one may be of a previous run, when the manifest was changed in
// between.
func (r *Registry) holdLocked(w *held) {
	if w.source == apiSource {
		return
	}
	if r.forerunnerLocked(w) {
		w.keptBack = true
		return
	}
	for _, other := range r.pods {
		if other.goesBefore(w) {
			w.keptBack = true
			return
		}
	}
	w.keptBack = false
}

// goesBefore says whether it is an earlier static pod of another's name that has not ended.
func (h *held) goesBefore(w *held) bool {
	return h != w && h.pod != nil && h.source != apiSource && h.seq < w.seq && !(h.gone && h.freed) &&
		h.pod.Name == w.pod.Name && h.pod.Namespace == w.pod.Namespace
}

// forerunnerLocked says whether containers of a pod that no source knows have, or may
// have, the static pod's name. It is ended as soon as the sources of static pods have
// been heard: the apiserver, which may be this very pod, has no say in it. So is what
// is left of one that runs no more.
func (r *Registry) forerunnerLocked(w *held) bool {
	found := false
	for uid, o := range r.observed {
		other := r.pods[uid]
		if uid == w.uid || o.StaticOf != w.pod.Namespace+"/"+w.pod.Name || other != nil && other.pod != nil {
			continue
		}
		if other == nil && o.Known && r.staticHeardLocked() && r.life != nil && !r.closed {
			r.orphanLocked(uid)
		}
		if !o.Known || slices.ContainsFunc(o.Containers, running) {
			found = true
		}
	}
	return found
}

// staticHeardLocked says whether all sources of static pods were heard.
func (r *Registry) staticHeardLocked() bool {
	for _, src := range r.cfg.Sources {
		if src != apiSource && !r.ready[src] {
			return false
		}
	}
	return true
}

// holdAgainLocked looks again at the pods that are held back.
func (r *Registry) holdAgainLocked() {
	for _, w := range r.pods {
		if !w.keptBack {
			continue
		}
		if r.holdLocked(w); !w.keptBack {
			w.inbox.ring()
		}
	}
}

// finished takes a worker out that is done. It says whether the worker's end
// stands: what came meanwhile makes a new worker.
func (r *Registry) finished(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	delete(r.pods, uid)
	r.activeChanged()
	answer(w.inbox.take().reclaims, Reclaimed{})
	r.deps.Mirrors.Ended(w.uid)
	r.deps.Timelines.Close(w.uid)
	if w.pod != nil && !w.gone {
		r.ended[w.uid] = remains{w.pod, time.Now()}
	}
	r.deps.Status.Forget(w.uid)
	r.deps.Probes.Remove(w.uid)
	r.deps.Pods.Remove(w.uid)
	r.deps.Allocations.Forget(w.uid)
	r.deps.Conditions.Forget(w.uid)
	r.deps.Ends.Forget(w.uid)
	r.settleLocked(nil, triggerRemoved)
	o := r.observed[w.uid]
	if left := len(o.Sandboxes)+len(o.Containers) > 0 || w.keptLogs; left && w.again == nil {
		r.orphanLocked(w.uid)
	}
	if w.again != nil {
		next := r.addLocked(w.uid)
		next.pod, next.source = w.again, w.againSource
		next.givePod(w.again)
		r.deps.Metrics.restarted(w.againSource != apiSource)
		r.holdLocked(next)
		r.startLocked(next)
	}
	r.holdAgainLocked()
	for _, other := range r.pods {
		if other.admission == podstate.AdmissionPending && !other.keptBack {
			other.inbox.ring()
		}
	}
}

// Returns says whether a pod that is being ended is wanted again, and so begins
// anew when that is done.
func (r *Registry) Returns(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	if w == nil || w.again == nil {
		return false
	}
	w.keptLogs = true
	return true
}

// note keeps what others need to know: their admission, and those of its name.
func (r *Registry) note(uid types.UID, stopped, freed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	if w.freed != freed {
		w.freed = freed
		r.holdAgainLocked()
	}
	if w.stopped == stopped {
		return
	}
	w.stopped = stopped
	r.activeChanged()
	if stopped {
		r.deps.Mirrors.Ended(w.uid)
		r.settleLocked(nil, triggerRemoved)
	}
	if stopped {
		r.askAgainLocked()
		if w.source != apiSource {
			r.deps.Ends.Forget(w.uid) // a later podsync begins it anew, as after any end
		}
	}
}

// askAgainLocked lets pods that wait for admission ask again.
func (r *Registry) askAgainLocked() {
	for _, other := range r.pods {
		if other.admission == podstate.AdmissionPending && !other.keptBack {
			other.inbox.ring()
		}
	}
}

// ProbeResult takes in what a probe found.
func (r *Registry) ProbeResult(uid types.UID, key podstate.ProbeKey, result podstate.ProbeResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.pods[uid]; w != nil {
		w.inbox.tell(func(in *told) {
			if in.probes == nil {
				in.probes = map[podstate.ProbeKey]podstate.ProbeResult{}
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
		if w := r.pods[uid]; w != nil {
			w.inbox.tell(func(in *told) { in.objects = true })
		}
	}
}
