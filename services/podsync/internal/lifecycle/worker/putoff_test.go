package worker

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// shortOfMemory is a rig on a node that is short of memory, with what says so.
func shortOfMemory(t *testing.T) (*rig, *atomic.Pointer[map[v1.NodeConditionType]time.Time]) {
	r := unstarted(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
	conditions := &atomic.Pointer[map[v1.NodeConditionType]time.Time]{}
	conditions.Store(&map[v1.NodeConditionType]time.Time{v1.NodeMemoryPressure: {}})
	r.short = func() map[v1.NodeConditionType]time.Time { return *conditions.Load() }
	r.start()
	r.reg.Ready("api")
	return r, conditions
}

// owned is a pod of a controller.
func owned(name, controller string) *v1.Pod {
	pod, yes := newPod(name, v1.Container{Image: "app:1"}), true
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: controller, UID: types.UID(controller), Controller: &yes}}
	return pod
}

// evicts has a pod made, run and evicted.
func (r *rig) evicts(pod *v1.Pod) {
	r.t.Helper()
	r.reg.Set(pod, "api")
	r.until(pod.Name+" is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
	if _, err := r.reg.Stop(r.t.Context(), pod.UID, lowOnMemory(), nil); err != nil {
		r.t.Fatal(err)
	}
	r.until(pod.Name+" has failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
}

// lowOnMemory is the stop of a pod for a shortage of the node's.
func lowOnMemory() podstate.Stop {
	stop := evicted(1)
	stop.Message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
	return stop
}

// runs says whether something of a pod was made.
func (r *rig) runs(pod *v1.Pod) bool {
	for _, s := range r.rt.Snapshot().Sandboxes {
		if s.Config.GetMetadata().GetUid() == string(pod.UID) {
			return true
		}
	}
	return false
}

func TestTheThirdPodOfAControllerWaitsAfterTwoWereEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web")) // at once, as any pod
		third, other := owned("c", "web"), owned("d", "other")
		r.reg.Set(third, "api")
		r.reg.Set(other, "api")
		r.until("another controller's is ready", time.Minute, func() bool { return isReady(r.status(other.UID)) })
		time.Sleep(5 * time.Second)
		if r.runs(third) || r.status(third.UID).Phase != v1.PodPending {
			t.Errorf("it was started; status %+v", r.status(third.UID))
		}
		why, _ := r.reg.Explain(third.UID)
		if len(why.Waits) != 1 || why.Waits[0].Kind != "pressure" || !strings.Contains(why.Waits[0].Reason, "evicted 2 pods of ReplicaSet web because it was low on memory") || time.Until(why.Waits[0].Retry) > 5*time.Second {
			t.Errorf("it waits for %+v", why.Waits)
		}
		if got := r.eventsWith("BackOff"); len(got) != 1 || !strings.HasPrefix(got[0], " Warning BackOff Back-off starting pod for 10s: the node evicted 2 pods of ReplicaSet web") {
			t.Errorf("events %q", got)
		}
		if took := r.until("it is ready", time.Minute, func() bool { return isReady(r.status(third.UID)) }); took > 6*time.Second {
			t.Errorf("it was ready %v after 5s", took)
		}
		// The back-off doubles from the last one's end.
		if _, err := r.reg.Stop(t.Context(), third.UID, lowOnMemory(), nil); err != nil {
			t.Fatal(err)
		}
		r.until("it has failed", time.Minute, func() bool { return r.status(third.UID).Phase == v1.PodFailed })
		fourth := owned("e", "web")
		r.reg.Set(fourth, "api")
		if took := r.until("the next one is ready", time.Minute, func() bool { return isReady(r.status(fourth.UID)) }); took < 19*time.Second || took > 22*time.Second {
			t.Errorf("the next one was ready after %v", took)
		}
		// One that runs is none that waits.
		if other := r.status(other.UID); !isReady(other) {
			t.Errorf("the other: %+v", other)
		}
	})
}

func TestAPodWhoseStartIsPutOffStartsAtOnceWhenThePressureIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, conditions := shortOfMemory(t)
		r.reg.PressureChanged()
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		pod := owned("c", "web")
		r.reg.Set(pod, "api")
		time.Sleep(2 * time.Second)
		if r.runs(pod) {
			t.Fatal("it was started")
		}
		conditions.Store(&map[v1.NodeConditionType]time.Time{})
		r.reg.PressureChanged()
		if took := r.until("it is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > time.Second {
			t.Errorf("it was ready after %v", took)
		}
		// Once more short: what was evicted before is forgotten, and one that was let go is not held up.
		conditions.Store(&map[v1.NodeConditionType]time.Time{v1.NodeMemoryPressure: {}})
		r.reg.PressureChanged()
		next := owned("d", "web")
		r.reg.Set(next, "api")
		if took := r.until("the next one is ready", time.Minute, func() bool { return isReady(r.status(next.UID)) }); took > time.Second {
			t.Errorf("the next one was ready after %v", took)
		}
	})
}

func TestAPodWhoseStartIsPutOffEndsAtOnceWhenItIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		pod := owned("c", "web")
		r.reg.Set(pod, "api")
		time.Sleep(time.Second)
		deleted := pod.DeepCopy()
		at, grace := metav1.NewTime(time.Now().Add(30*time.Second)), int64(30)
		deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &at, &grace
		r.reg.Set(deleted, "api")
		if took := r.until("its object is deleted", time.Minute, func() bool { return r.e.isFinished(pod.UID) }); took > time.Second {
			t.Errorf("it was gone after %v", took)
		}
		if r.runs(pod) {
			t.Error("it was started")
		}
	})
}

func TestAFurtherEvictionPutsThoseOffThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		running := owned("z", "web")
		r.reg.Set(running, "api")
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		pod := owned("c", "web")
		r.reg.Set(pod, "api")
		time.Sleep(5 * time.Second)
		if _, err := r.reg.Stop(t.Context(), running.UID, lowOnMemory(), nil); err != nil {
			t.Fatal(err)
		}
		r.until("it has failed", time.Minute, func() bool { return r.status(running.UID).Phase == v1.PodFailed })
		synctest.Wait()
		if why, _ := r.reg.Explain(pod.UID); len(why.Waits) != 1 || !strings.Contains(why.Waits[0].Reason, "evicted 3 pods") {
			t.Errorf("it waits for %+v", why.Waits)
		}
		if took := r.until("it is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took < 19*time.Second || took > 22*time.Second {
			t.Errorf("it was ready %v after the third", took)
		}
		if got := r.eventsWith("BackOff"); len(got) != 1 {
			t.Errorf("events %q", got)
		}
	})
}

// An Event about a pod counts against how many there may be about it: what happens to it
// next would be lost.
func TestAPodThatIsPutOffAgainAndAgainIsSaidToBeWhenTwiceAsManyWereEvictedAndSeldomElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		var running []*v1.Pod
		for _, name := range []string{"p", "q", "r", "s", "t", "u", "v", "w"} {
			running = append(running, owned(name, "web"))
			r.reg.Set(running[len(running)-1], "api")
		}
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		pod := owned("c", "web")
		r.reg.Set(pod, "api")
		evict := func(pods []*v1.Pod, each time.Duration) {
			for _, other := range pods {
				time.Sleep(each)
				if _, err := r.reg.Stop(t.Context(), other.UID, lowOnMemory(), nil); err != nil {
					t.Fatal(err)
				}
				r.until(other.Name+" has failed", time.Minute, func() bool { return r.status(other.UID).Phase == v1.PodFailed })
			}
		}
		evict(running[:4], 5*time.Second)
		if got := r.eventsWith("BackOff"); len(got) != 2 || !strings.Contains(got[1], "evicted 4 pods") {
			t.Errorf("of six that were evicted the events %q", got)
		}
		evict(running[4:5], 140*time.Second)
		evict(running[5:], 170*time.Second)
		if got := r.eventsWith("BackOff"); len(got) != 4 || !strings.Contains(got[2], "evicted 8 pods") || !strings.Contains(got[3], "evicted 10 pods") || r.runs(pod) {
			t.Errorf("after some minutes the events %q", got)
		}
	})
}

func TestStaticAndCriticalPodsAndThoseOfNobodyAreNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		highest := int32(podutil.CriticalPriority)
		critical, static, lone := owned("critical", "web"), owned("static", "web"), newPod("lone", v1.Container{Image: "app:1"})
		critical.Spec.Priority = &highest
		static.Annotations = map[string]string{podutil.AnnotationSource: "file"}
		r.reg.Set(critical, "api")
		r.reg.Set(static, "file")
		r.reg.Set(lone, "api")
		for _, pod := range []*v1.Pod{critical, static, lone} {
			if took := r.until(pod.Name+" is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > time.Second {
				t.Errorf("%s was ready after %v", pod.Name, took)
			}
		}
	})
}

// Nothing of it is kept on the disk: the pods say it.
func TestAStartIsPutOffByANewPodsyncTooAndAPodThatRunsIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		running, first, second := owned("z", "web"), owned("a", "web"), owned("b", "web")
		r.reg.Set(running, "api")
		r.evicts(first)
		r.evicts(second)
		waits := owned("c", "web")
		r.reg.Set(waits, "api")
		time.Sleep(time.Second)
		known := func(pod *v1.Pod) *v1.Pod {
			pod = pod.DeepCopy()
			pod.Status = r.status(pod.UID)
			return pod
		}
		pods := []*v1.Pod{known(running), known(first), known(second), known(waits)}
		before := len(r.rt.Snapshot().Containers)
		r.stop()
		r.start()
		for _, pod := range pods {
			r.reg.Set(pod, "api")
		}
		r.reg.Ready("api")
		time.Sleep(2 * time.Second)
		if r.runs(waits) {
			t.Error("it was started by a new podsync")
		}
		if !isReady(r.status(running.UID)) || len(r.rt.Snapshot().Containers) > before {
			t.Errorf("the one that runs: %+v", r.status(running.UID))
		}
		if why, _ := r.reg.Explain(running.UID); len(why.Waits) != 0 {
			t.Errorf("the one that runs waits for %+v", why.Waits)
		}
		if took := r.until("it is ready", time.Minute, func() bool { return isReady(r.status(waits.UID)) }); took > 8*time.Second {
			t.Errorf("it was ready %v after 3s", took)
		}
	})
}

func TestAnEvictionForALimitOfThePodsOwnPutsNobodyOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		for _, name := range []string{"a", "b", "c"} {
			pod := owned(name, "web")
			r.reg.Set(pod, "api")
			if took := r.until(name+" is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > time.Second {
				t.Errorf("%s was ready after %v", name, took)
			}
			stop := evicted(1)
			stop.Message = `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `
			if _, err := r.reg.Stop(t.Context(), pod.UID, stop, nil); err != nil {
				t.Fatal(err)
			}
			r.until(name+" has failed", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		}
	})
}

// A new podsync has the pods before it knows what the node is short of.
func TestAPodWaitsUntilItIsKnownWhetherTheNodeIsShortAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, conditions := shortOfMemory(t)
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		conditions.Store(new(map[v1.NodeConditionType]time.Time))
		pod, other := owned("c", "web"), owned("d", "other")
		pod.Status.StartTime = &metav1.Time{Time: time.Now()} // it was admitted in a previous run
		r.reg.Set(pod, "api")
		r.reg.Set(other, "api")
		r.until("another controller's is ready", time.Minute, func() bool { return isReady(r.status(other.UID)) })
		time.Sleep(time.Second)
		if r.runs(pod) {
			t.Error("it was started")
		}
		conditions.Store(&map[v1.NodeConditionType]time.Time{})
		r.reg.Recheck()
		if took := r.until("it is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > time.Second {
			t.Errorf("it was ready after %v", took)
		}
	})
}

func TestAPodThatMayStartIsNotPutOffByAnEvictionBeforeItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		running := owned("z", "web")
		r.reg.Set(running, "api")
		r.evicts(owned("a", "web"))
		r.rt.SetNetworkReady(false)
		time.Sleep(10 * time.Second) // until that was seen
		pod := owned("b", "web")
		r.reg.Set(pod, "api")
		time.Sleep(time.Second)
		if r.runs(pod) {
			t.Fatal("it runs without a network")
		}
		if _, err := r.reg.Stop(t.Context(), running.UID, lowOnMemory(), nil); err != nil {
			t.Fatal(err)
		}
		r.until("another has failed", time.Minute, func() bool { return r.status(running.UID).Phase == v1.PodFailed })
		r.rt.SetNetworkReady(true)
		if took := r.until("it is ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > 8*time.Second || len(r.eventsWith("BackOff")) > 0 {
			t.Errorf("it was ready after %v; events %q", took, r.eventsWith("BackOff"))
		}
	})
}

// Its time runs meanwhile, and its end would be no disruption: a Job would count it.
func TestAPodWithADeadlineIsPutOffForATenthOfItAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := shortOfMemory(t)
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		pod, limit := owned("c", "web"), int64(40)
		pod.Spec.ActiveDeadlineSeconds = &limit
		r.reg.Set(pod, "api")
		time.Sleep(3500 * time.Millisecond)
		if r.runs(pod) {
			t.Error("it is not put off")
		}
		r.until("it is ready", 2*time.Second, func() bool { return isReady(r.status(pod.UID)) })
	})
}

func TestPodsOfAControllerThatWereMadeAtOnceStartOneAtATimeAfterABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, conditions := shortOfMemory(t)
		r.reg.PressureChanged()
		r.evicts(owned("a", "web"))
		r.evicts(owned("b", "web"))
		waiting := []*v1.Pod{owned("c", "web"), owned("d", "web"), owned("e", "web"), owned("f", "web")}
		for _, pod := range waiting {
			r.reg.Set(pod, "api")
		}
		run := func() (n int) {
			for _, pod := range waiting {
				if r.runs(pod) {
					n++
				}
			}
			return n
		}
		for i, want := range []int{0, 1, 2} {
			time.Sleep(5 * time.Second)
			if got := run(); got != want {
				t.Errorf("after %d s %d of them run", 10*i+5, got)
			}
			time.Sleep(5 * time.Second)
		}
		if got := r.eventsWith("BackOff"); len(got) != len(waiting) {
			t.Errorf("events %q", got)
		}
		conditions.Store(&map[v1.NodeConditionType]time.Time{})
		r.reg.PressureChanged()
		time.Sleep(time.Second)
		if got := run(); got != len(waiting) {
			t.Errorf("when the node is short of nothing %d run", got)
		}
	})
}
