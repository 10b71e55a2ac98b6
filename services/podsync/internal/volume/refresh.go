package volume

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// refreshTimeout bounds one pod's refresh.
const refreshTimeout = time.Minute

// retries is how a failed refresh is tried again.
func retries() workqueue.TypedRateLimiter[types.UID] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](500*time.Millisecond, 2*time.Minute)
}

// Run keeps the content of volumes current until ctx is done.
func (s *Set) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(retries(), workqueue.TypedRateLimitingQueueConfig[types.UID]{})
	s.mu.Lock()
	s.queue = queue
	for uid, at := range s.early {
		queue.AddAfter(uid, time.Until(at))
	}
	clear(s.early)
	s.mu.Unlock()
	var workers sync.WaitGroup
	for range s.cfg.Workers {
		workers.Go(func() {
			for s.refreshNext(ctx, queue) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

// refreshAt asks for a refresh of a pod's files.
func (s *Set) refreshAt(uid types.UID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue != nil {
		s.queue.AddAfter(uid, time.Until(at)) // at once when at has passed
		return
	}
	if before, ok := s.early[uid]; !ok || at.Before(before) {
		s.early[uid] = at
	}
}

// ObjectChanged tells that an API object changed that these pods hold; their
// files follow at once. Give it to object.Store.Subscribe.
func (s *Set) ObjectChanged(holders []types.UID) {
	now := time.Now()
	for _, uid := range holders {
		s.mu.Lock()
		st := s.pods[uid]
		waits := st != nil && st.failed
		s.mu.Unlock()
		if st == nil {
			continue
		}
		s.refreshAt(uid, now)
		if waits && s.deps.Changed != nil {
			s.deps.Changed(uid)
		}
	}
}

func (s *Set) refreshNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.UID]) bool {
	uid, stop := queue.Get()
	if stop {
		return false
	}
	defer queue.Done(uid)
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	pod, err := s.refresh(ctx, uid)
	if err == nil {
		queue.Forget(uid)
		return true
	}
	if queue.NumRequeues(uid) == 0 {
		klog.FromContext(ctx).Info("Refreshing a pod's files failed, the old ones stay and it is tried again",
			"pod", klog.KObj(pod), "err", err)
	}
	queue.AddRateLimited(uid)
	return true
}

// refresh writes the content of a pod's volumes again, of those that were set
// up; setting up the others is Setup's, asked for by the pod's worker.
func (s *Set) refresh(ctx context.Context, uid types.UID) (*v1.Pod, error) {
	s.mu.Lock()
	known := s.pods[uid] != nil
	s.mu.Unlock()
	if !known {
		return nil, nil
	}
	st, leave, err := s.enter(ctx, uid)
	if err != nil {
		return nil, err
	}
	defer leave()
	s.mu.Lock()
	pod, failed := st.pod, st.failed
	up := make(map[string]bool, len(st.paths))
	for name := range st.paths {
		up[name] = true
	}
	if pod == nil {
		s.drop(uid, st)
	}
	s.mu.Unlock()
	if pod == nil {
		return nil, nil
	}
	results := s.setupAll(ctx, pod, func(v *v1.Volume) bool { return isContent(v) && up[v.Name] })
	err = s.record(st, pod, results)
	s.mu.Lock()
	st.failed = failed // only Setup decides this
	s.mu.Unlock()
	return pod, err
}
