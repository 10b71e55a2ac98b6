package worker

// Work says what a worker has to do with its pod, in the words of the series
// kubelet_working_pods.
type Work struct {
	// Config is desired, orphan (its source wants it no more) or runtime_only
	// (no source ever named it).
	Config string
	// Lifecycle is sync, terminating or terminated.
	Lifecycle string
	// Static says that the pod is not from the apiserver; false for those that
	// no source named.
	Static bool
}

// Count returns how many workers there are of each kind.
func (r *Registry) Count() map[Work]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[Work]int{}
	for _, w := range r.pods {
		work := Work{Config: "desired", Lifecycle: "sync"}
		switch {
		case w.pod == nil:
			work.Config, work.Lifecycle = "runtime_only", "terminating"
		case w.gone:
			work.Config, work.Lifecycle = "orphan", "terminating"
		case w.pod.DeletionTimestamp != nil:
			work.Lifecycle = "terminating"
		}
		work.Static = w.pod != nil && w.source != apiSource
		if w.stopped {
			work.Lifecycle = "terminated"
		}
		out[work]++
	}
	return out
}
