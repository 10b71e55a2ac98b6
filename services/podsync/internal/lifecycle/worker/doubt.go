package worker

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Doubt implements source.Sink: while a manifest cannot be read, what runs of a static
// pod that no source knows may be that manifest's. A slip of the pen must not stop a
// control plane when this process is started anew.
func (r *Registry) Doubt(src string, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.sayDoubtedLocked()
	if some {
		r.doubts[src] = true
		return
	}
	delete(r.doubts, src)
	if !r.sweeping {
		return
	}
	for uid := range r.observed {
		if r.pods[uid] == nil {
			r.unknownLocked(uid)
		}
	}
}

// doubtedLocked says whether a pod that no source knows may be wanted all the same: a
// static one whose name no other pod has.
func (r *Registry) doubtedLocked(uid types.UID) bool {
	o, runs := r.observed[uid]
	if len(r.doubts) == 0 || !runs || o.StaticOf == "" {
		return false
	}
	for _, w := range r.pods {
		if w.pod != nil && !w.gone && w.pod.Namespace+"/"+w.pod.Name == o.StaticOf {
			return false
		}
	}
	return true
}

// InDoubt says whether a pod goes on that is in doubt.
func (r *Registry) InDoubt(namespace, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, o := range r.observed {
		if o.StaticOf == namespace+"/"+name && r.pods[uid] == nil && r.doubtedLocked(uid) {
			return true
		}
	}
	return false
}

// sayDoubtedLocked tells which pods are in doubt when that has changed: nobody probes
// or restarts them meanwhile.
func (r *Registry) sayDoubtedLocked() {
	if r.deps.InDoubt == nil || !r.sweeping || len(r.doubts) == 0 && len(r.inDoubt) == 0 {
		return
	}
	var pods []string
	for uid, o := range r.observed {
		if r.pods[uid] != nil || !r.doubtedLocked(uid) {
			continue
		}
		pod := o.StaticOf
		if o.Known && !slices.ContainsFunc(o.Containers, running) {
			pod += " (none of its containers runs any more)"
		}
		pods = append(pods, pod)
	}
	slices.Sort(pods)
	if !slices.Equal(pods, r.inDoubt) {
		r.inDoubt = pods
		r.deps.InDoubt(pods)
	}
}

// unknownLocked ends what is in the runtime of a pod that no source knows, unless it is
// in doubt: then its mirror stays as long as something of it is there. So does that of
// one that was not looked at yet.
func (r *Registry) unknownLocked(uid types.UID) {
	o, there := r.observed[uid]
	switch {
	case !there:
		r.deps.Mirrors.Ended(uid)
	case r.doubtedLocked(uid):
		r.deps.Mirrors.Orphan(uid)
	case len(o.Sandboxes)+len(o.Containers) > 0:
		r.orphanLocked(uid)
	case !o.Known:
		r.deps.Mirrors.Orphan(uid)
	}
}
