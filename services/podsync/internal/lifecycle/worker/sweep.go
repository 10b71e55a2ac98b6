package worker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// sweep ends what no source knows, once all sources and the runtime were
// heard: until then such a pod may yet turn out to be wanted.
func (r *Registry) sweep() {
	r.mu.Lock()
	for _, src := range r.cfg.Sources {
		if !r.ready[src] {
			r.mu.Unlock()
			return
		}
	}
	if r.all.IsZero() {
		r.all = time.Now()
		r.activeChanged()
		r.settleLocked(nil, triggerPeriodic)
	}
	if !r.seen || r.life == nil || r.closed || r.sweeping {
		r.mu.Unlock()
		return
	}
	r.sweeping = true
	known := func(uid types.UID) bool { return r.pods[uid] != nil || r.doubtedLocked(uid) }
	r.deps.Allocations.Prune(known)
	// What runs of a pod that its source has dropped meanwhile ends for the same reason.
	r.deps.Ends.Prune(func(uid types.UID) bool {
		_, runs := r.observed[uid]
		return runs || known(uid)
	})
	r.deps.Conditions.Prune(known)
	if r.deps.AllKnown != nil {
		r.deps.AllKnown(known)
	}
	pods, life := len(r.pods), r.life
	for uid := range r.observed {
		if r.pods[uid] == nil {
			r.unknownLocked(uid)
		}
	}
	r.deps.Mirrors.AllKnown()
	r.sayDoubtedLocked()
	klog.FromContext(life).Info("All sources and the runtime were seen", "pods", pods, "podsThatNoSourceKnows", len(r.pods)-pods)
	if r.deps.OnDisk != nil {
		r.running.Go(func() { r.sweepDisk(life) })
	}
	r.mu.Unlock()
}

// sweepDisk ends pods of which only files or cgroups are left.
func (r *Registry) sweepDisk(life context.Context) {
	disk := r.deps.OnDisk(life)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range disk {
		if r.pods[uid] == nil && !r.doubtedLocked(uid) {
			r.orphanLocked(uid)
		}
	}
}

// orphanLocked makes a worker that ends a pod no source knows.
func (r *Registry) orphanLocked(uid types.UID) {
	r.deps.Metrics.orphaned()
	r.deps.Mirrors.Orphan(uid)
	w := r.addLocked(uid)
	if stop := r.deps.Ends.Of(uid); stop != nil {
		w.endsLocked(*stop)
	}
	r.startLocked(w)
}
