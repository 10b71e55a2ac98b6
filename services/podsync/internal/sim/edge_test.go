package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// edge is a node that is short of memory, and a controller that makes a pod anew each
// time that one is evicted.
type edge struct {
	hogs []*subject
	// next is the hog that is to be made or evicted; made: it was made.
	next int
	made bool
	// asked is when its eviction was first asked for, again when last.
	asked, again time.Time
	// untold: podsync does not hear that the node is short.
	untold bool
}

// edges adds a controller of hogs to a share of the scenarios.
func (s *scenario) edges(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 31))
	if rng.IntN(6) == 0 {
		s.edge(time.Duration(rng.Int64N(int64(s.noisy/3))), 3+rng.IntN(3), rng, false)
	}
}

// edge adds so many hogs of one controller from a time on.
func (s *scenario) edge(at time.Duration, hogs int, rng *rand.Rand, untold bool) {
	e, yes := &edge{untold: untold}, true
	for i := range hogs {
		grace := int64(rng.IntN(3))
		sub := newPod("forever", fmt.Sprint("hog", i), &grace, rng)
		sub.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "hogs", UID: "hogs", Controller: &yes}}
		e.hogs = append(e.hogs, sub)
		s.put(sub)
	}
	for _, sub := range s.subjects { // Or admission would reject those that ask for nothing.
		sub.pod.Spec.Tolerations = append(sub.pod.Spec.Tolerations, v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists})
	}
	s.add(at, "the node is short of memory", func(w *world) { w.short(e, true) })
	for ; at < s.noisy-time.Second; at += time.Second {
		s.add(at, "the controller of the hogs", func(w *world) { w.hogs(e) })
	}
	s.add(s.noisy-time.Second, "the node is short of nothing", func(w *world) {
		w.judge.letsGo(e)
		w.short(e, false)
	})
}

// short says on the Node, and to podsync, whether the node is short of memory.
func (w *world) short(e *edge, is bool) {
	if e.untold {
		return
	}
	condition := v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, LastTransitionTime: metav1.Now()}
	if is {
		condition.Status = v1.ConditionTrue
	}
	w.attacher.node(func(st *v1.NodeStatus) { st.Conditions = []v1.NodeCondition{condition} })
	w.press(is)
}

// press tells the podsync that there is.
func (w *world) press(is bool) {
	l, server := w.serving()
	if server == nil {
		return
	}
	req := &podsyncv1.SetPressureRequest{Ttl: durationpb.New(time.Minute)}
	if is {
		req.Conditions = []string{string(v1.NodeMemoryPressure)}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	if _, err := server.SetPressure(ctx, req); err != nil && !l.dead.Load() {
		w.judge.fail("podsync does not take what the node is short of: %v", err)
	}
}

// hogs has the next hog made when the one before it is known to be evicted, and evicted
// when it runs.
func (w *world) hogs(e *edge) {
	if !e.untold {
		w.press(true) // As nodestatus does now and then.
	}
	if e.next == len(e.hogs) {
		return
	}
	sub := e.hogs[e.next]
	pod := w.api.Pod(namespace, sub.pod.Name)
	switch {
	case !e.made:
		w.judge.holdsBack(sub, e.next, e.asked)
		w.create(sub)
		e.made = true
	case pod == nil:
	case isEvicted(pod):
		e.next, e.made, e.again = e.next+1, false, time.Time{}
	case pod.Status.Phase == v1.PodRunning && e.next < len(e.hogs)-1 && time.Since(e.again) > 15*time.Second:
		if e.again = time.Now(); e.asked.Before(w.judge.since(sub)) {
			e.asked = e.again
		}
		w.evict(sub, 0, survives)
	}
}

// lowOn is how the message of an eviction begins that is for a shortage.
const lowOn = "The node was low on resource: memory. "

// isHog says whether a pod has a controller that makes it anew.
func (s *subject) isHog() bool { return len(s.pod.OwnerReferences) > 0 }

// since is when a pod was asked for.
func (j *judge) since(sub *subject) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.facts[sub.pod.Name].since
}

// holdsBack notes, of a pod that is about to be made, that it must not start before the
// back-off of so many evictions is over, the last of which was asked for at a time.
func (j *judge) holdsBack(sub *subject, evicted int, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if evicted < 2 {
		return
	}
	// A podsync that was started since knows the end in whole seconds.
	j.notBefore[sub] = asked.Truncate(time.Second).Add(10 * time.Second << (evicted - 2))
}

// letsGo notes that the node is short of nothing.
func (j *judge) letsGo(e *edge) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, sub := range e.hogs {
		delete(j.notBefore, sub)
	}
}

// tooSoon checks, at a start, that the pod's back-off is over.
func (j *judge) tooSoon(at time.Time, f *facts) {
	if until := j.notBefore[f.sub]; at.Before(until) {
		j.violationLocked("pod %s was started %v before the back-off was over of a controller whose pods are evicted again and again", f.sub.pod.Name, until.Sub(at))
	}
}
