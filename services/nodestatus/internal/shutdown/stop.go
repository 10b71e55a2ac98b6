package shutdown

import (
	"context"
	"slices"
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
	// priorities are those of all pods that were ever named.
	priorities map[string]int32
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

func newView() *view { return &view{changed: make(chan struct{}), priorities: map[string]int32{}} }

func (v *view) set(pods []Pod, fresh, whole bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods, v.whole = pods, whole
	for _, p := range pods {
		v.priorities[p.UID] = p.Priority
	}
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

// priority is that of a pod; known: it was named.
func (v *view) priority(uid string) (priority int32, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	priority, known = v.priorities[uid]
	return priority, known
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
	// tried is the run of podsync in which a pod's stop was asked for last, asked that in
	// which it was taken, never that in which podsync said that it does not stop it.
	tried, asked, never map[string]uint64
	// late are pods whose stop was taken in the second half of the time that this process had
	// for their group, or after it.
	late map[string]bool
}

func newStopper(pods Pods) *stopper {
	return &stopper{pods: pods, tried: map[string]uint64{}, asked: map[string]uint64{}, never: map[string]uint64{}, late: map[string]bool{}}
}

// end ends the pods of group i, also those that are seen only later, and waits until
// they have ended or the time is over.
func (s *stopper) end(ctx context.Context, seen *view, groups []Group, i int, until time.Time) {
	g, of := groups[i], func(p Pod) bool { return groupOf(groups, p.Priority) == i }
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	// A podsync that does not answer takes no other group's time.
	asking, cancel := context.WithTimeout(ctx, max(time.Until(until), leastAsking))
	defer cancel()
	half := time.Now().Add(time.Until(until) / 2)
	said, over := false, g.Period > 0 && !until.After(time.Now())
	for {
		now := seen.get()
		running := s.running(now, of)
		if over {
			s.setLate(running)
		}
		if len(running) == 0 && now.whole {
			return
		}
		if !said && len(running) > 0 {
			said = true
			klog.FromContext(ctx).Info("The pods of a priority are ended, for the machine goes down", "priority", g.Priority, "pods", len(running), "after", time.Until(until))
		}
		var retry <-chan time.Time
		unasked := s.unasked(running, now.life)
		if !s.ask(asking, running, now.life, g.Period) {
			retry = time.After(again)
		}
		if time.Now().After(half) {
			s.setLate(slices.DeleteFunc(unasked, func(p Pod) bool { return s.asked[p.UID] != now.life }))
		}
		s.endAgain(asking, now, func(p Pod) bool { return groupOf(groups, p.Priority) < i }, g.Period)
		if len(s.running(now, of)) == 0 && now.whole {
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

// endAgain ends pods of groups that had their time and that a podsync which was started
// since has not been asked for: one that forgot a static pod's stop has started it again.
// It is asked once, for it is others' time.
func (s *stopper) endAgain(ctx context.Context, now sight, of func(Pod) bool, grace time.Duration) {
	pods := s.running(now, func(p Pod) bool { return s.tried[p.UID] != now.life && of(p) })
	s.setLate(pods)
	s.ask(ctx, pods, now.life, grace)
}

func (s *stopper) setLate(pods []Pod) {
	for _, p := range pods {
		s.late[p.UID] = true
	}
}

// lateRunning are how many of the late pods have not ended.
func (s *stopper) lateRunning(now sight) int {
	return len(s.running(now, func(p Pod) bool { return s.late[p.UID] }))
}

func (s *stopper) running(now sight, of func(Pod) bool) (out []Pod) {
	for _, p := range now.pods {
		if !p.Ended && s.never[p.UID] != now.life && of(p) {
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
		s.tried[p.UID] = life
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
				s.never[p.UID] = life
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
