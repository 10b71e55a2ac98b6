package volume

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
)

// refreshTimeout bounds one pod's refresh.
const refreshTimeout = time.Minute

// retries is how a failed refresh is tried again.
func retries() workqueue.TypedRateLimiter[types.UID] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstRetry, lastRetry)
}

const firstRetry, lastRetry = 500 * time.Millisecond, 2 * time.Minute

// delay is how soon a refresh is tried again that has failed so often before.
func delay(failures int) time.Duration {
	return min(firstRetry<<min(failures, 16), lastRetry)
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
	s.watchClock(ctx)
	queue.ShutDown()
	workers.Wait()
	return nil
}

// clockLooked is how often it is looked what is due by the wall clock: the queue's
// timers stand still while the machine sleeps.
const clockLooked = time.Minute

// timerLate is more than a timer is late that has run.
const timerLate = 5 * time.Second

// watchClock asks for the refreshes that are due by the wall clock, until ctx is
// done.
func (s *Set) watchClock(ctx context.Context) {
	again := time.NewTicker(clockLooked)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		// A timer that has run had its turn.
		for _, uid := range s.due(time.Now().Add(-timerLate)) {
			s.refreshAt(uid, time.Now())
		}
	}
}

// due lists the pods whose time for a refresh has come.
func (s *Set) due(now time.Time) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uids []types.UID
	for uid, st := range s.pods {
		if !st.next.IsZero() && serviceaccount.Due(now, st.next) {
			uids = append(uids, uid)
		}
	}
	return uids
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
// files follow at once. What could not be set up without it their workers try again, who
// are told beside. Give it to objects.Store.Subscribe.
func (s *Set) ObjectChanged(holders []types.UID) {
	now := time.Now()
	for _, uid := range holders {
		s.mu.Lock()
		known := s.pods[uid] != nil
		s.mu.Unlock()
		if known {
			s.refreshAt(uid, now)
		}
	}
}

func (s *Set) refreshNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.UID]) bool {
	uid, stop := queue.Get()
	if stop {
		return false
	}
	defer queue.Done(uid)
	done, mayGo := s.hand(uid)
	if !mayGo {
		return true
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	pod, err := s.refresh(ctx, uid, delay(queue.NumRequeues(uid)))
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

// hand takes a hand for a pod's refresh and returns what gives it back. All but one may
// work for one namespace, whose volumes may take as long as who makes its pods likes;
// a pod for which there is none waits until one of them is done.
func (s *Set) hand(uid types.UID) (done func(), mayGo bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil || st.pod == nil {
		return func() {}, true // nothing to do
	}
	namespace := st.pod.Namespace
	if s.busy[namespace] >= max(1, s.cfg.Workers-1) {
		if !slices.Contains(s.parked[namespace], uid) {
			s.parked[namespace] = append(s.parked[namespace], uid)
		}
		return nil, false
	}
	s.busy[namespace]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy[namespace]--; s.busy[namespace] == 0 {
			delete(s.busy, namespace)
		}
		// All of them, and those for whom there is none park again: of the next one
		// alone nothing would be left to wake the others if it has been torn down.
		for _, waiting := range s.parked[namespace] {
			s.queue.Add(waiting)
		}
		delete(s.parked, namespace)
	}, true
}

// refresh writes the content of a pod's volumes again, of those that were set
// up; setting up the others is Setup's, asked for by the pod's worker. retry is how soon what
// fails is tried again.
func (s *Set) refresh(ctx context.Context, uid types.UID, retry time.Duration) (*v1.Pod, error) {
	st, leave := s.tryEnter(uid)
	if st == nil {
		return nil, nil
	}
	defer leave()
	s.mu.Lock()
	pod := st.pod
	up := make(map[string]bool, len(st.paths))
	for name, path := range st.paths {
		up[name] = path != "" // else no container uses it
	}
	if pod == nil {
		s.dropLocked(uid, st)
	}
	s.mu.Unlock()
	if pod == nil {
		return nil, nil
	}
	results := s.each(ctx, pod, func(v *v1.Volume) bool { return up[v.Name] && s.refreshes(v) }, func(ctx context.Context, r Request) (Made, error) {
		return s.drivers[plugin(r.Volume)].(Refresher).Refresh(ctx, r)
	})
	s.stale(pod, results, retry)
	return pod, s.record(ctx, st, pod, results)
}

// stale keeps which of a pod's volumes could not be refreshed, and tells its owner.
func (s *Set) stale(pod *v1.Pod, results map[string]result, retry time.Duration) {
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		switch r, done := results[name]; {
		case !done || r.unused:
		case r.err == nil:
			s.deps.Stale.Good(pod.UID, name)
		default:
			s.deps.Stale.Failed(pod, name, "", r.err, time.Now().Add(retry))
		}
	}
}
