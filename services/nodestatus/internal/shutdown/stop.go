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
)

// view is the pods as podsync says last.
type view struct {
	mu      sync.Mutex
	pods    []Pod
	life    uint64        // grows when podsync may have been started anew; 0: nothing is known
	changed chan struct{} // closed and made anew with each change
}

func newView() *view { return &view{changed: make(chan struct{})} }

func (v *view) set(pods []Pod, fresh bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods = pods
	if fresh {
		v.life++
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) get() (pods []Pod, life uint64, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods, v.life, v.changed
}

// await waits until something is known; false: nothing is until the deadline.
func (v *view) await(ctx context.Context, deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		_, life, changed := v.get()
		if life > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-changed:
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
	said := false
	for {
		pods, life, changed := seen.get()
		running := s.running(pods, of)
		if len(running) == 0 {
			return
		}
		if !said {
			said = true
			klog.FromContext(ctx).Info("The pods of a priority are ended, for the machine goes down", "priority", g.Priority, "pods", len(running), "after", time.Until(until))
		}
		var retry <-chan time.Time
		if !s.ask(ctx, running, life, g.Period) {
			retry = time.After(again)
		}
		if len(s.running(pods, of)) == 0 {
			return // podsync stops none of them.
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			klog.FromContext(ctx).Info("The time of the pods of a priority is over, though some have not ended", "priority", g.Priority, "pods", len(running))
			return
		case <-changed:
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

// ask asks for the stop of those for which this life of podsync was not asked yet, and
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
