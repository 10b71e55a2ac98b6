package shutdown

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// again is how long after a failure a pod's stop is asked for again.
	again = time.Second
	// atOnce is how many stops are asked for at once; each is written to a disk.
	atOnce = 8
	// leastAsking is how long stops may be asked for at least, though a group has no
	// time.
	leastAsking = 5 * time.Second
)

// view is the pods as podsync says last.
type view struct {
	mu      sync.Mutex
	pods    []Pod
	life    uint64        // grows when podsync may have been started anew; 0: nothing is known
	whole   bool          // there are no other pods
	changed chan struct{} // closed and made anew with each change
}

// sight is a view at one moment.
type sight struct {
	pods []Pod
	life uint64
	// whole: there are no other pods.
	whole bool
	// changed is closed when this is not the newest any more.
	changed <-chan struct{}
}

func newView() *view { return &view{changed: make(chan struct{})} }

func (v *view) set(pods []Pod, fresh, whole bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods, v.whole = pods, whole
	if fresh {
		v.life++
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) get() sight {
	v.mu.Lock()
	defer v.mu.Unlock()
	return sight{v.pods, v.life, v.whole, v.changed}
}

// await waits until podsync names its pods; false: it does not until the deadline.
func (v *view) await(ctx context.Context, deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		now := v.get()
		if now.life > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-now.changed:
		}
	}
}

// stopper asks for the ends of pods. One goroutine uses it.
type stopper struct {
	pods Pods
	// asked is the life of podsync in which a pod's stop was taken, never: those that
	// podsync does not stop.
	asked map[string]uint64
	never map[string]bool
}

func newStopper(pods Pods) *stopper {
	return &stopper{pods: pods, asked: map[string]uint64{}, never: map[string]bool{}}
}

// end ends the pods of a group, also those that are seen only later, and waits until
// they have ended or the time is over.
func (s *stopper) end(ctx context.Context, seen *view, of func(Pod) bool, g Group, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	// A podsync that does not answer takes no other group's time.
	asking, cancel := context.WithTimeout(ctx, max(time.Until(until), leastAsking))
	defer cancel()
	said := false
	for {
		now := seen.get()
		running := s.running(now.pods, of)
		if len(running) == 0 && now.whole {
			return
		}
		if !said && len(running) > 0 {
			said = true
			klog.FromContext(ctx).Info("The pods of a priority are ended, for the machine goes down", "priority", g.Priority, "pods", len(running), "after", time.Until(until))
		}
		var retry <-chan time.Time
		if !s.ask(asking, running, now.life, g.Period) {
			retry = time.After(again)
		}
		if len(s.running(now.pods, of)) == 0 && now.whole {
			return // podsync stops none of them.
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			klog.FromContext(ctx).Info("The time of the pods of a priority is over, though some have not ended", "priority", g.Priority, "pods", len(running))
			return
		case <-now.changed:
		case <-retry:
		}
	}
}

func (s *stopper) running(pods []Pod, of func(Pod) bool) (out []Pod) {
	for _, p := range pods {
		if !p.Ended && !s.never[p.UID] && of(p) {
			out = append(out, p)
		}
	}
	return out
}

// ask asks for the stop of those for which this run of podsync was not asked yet, and
// says whether it took all.
func (s *stopper) ask(ctx context.Context, pods []Pod, life uint64, grace time.Duration) bool {
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	all := true
	for _, p := range s.unasked(pods, life) {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			stops, err := s.pods.Stop(ctx, p, grace)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && stops:
				s.asked[p.UID] = life
			case err == nil:
				s.never[p.UID] = true
			default:
				all = false
				klog.FromContext(ctx).Info("A pod's stop was not taken, it is asked for again", "pod", klog.KRef(p.Namespace, p.Name), "err", err, "after", again)
			}
		})
	}
	asking.Wait()
	return all
}

func (s *stopper) unasked(pods []Pod, life uint64) (out []Pod) {
	for _, p := range pods {
		if s.asked[p.UID] != life {
			out = append(out, p)
		}
	}
	return out
}
