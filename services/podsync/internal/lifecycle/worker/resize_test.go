package worker

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

func sized(cpu, memory string) v1.Container {
	r := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return v1.Container{Image: "img:1", Resources: v1.ResourceRequirements{Requests: r, Limits: r.DeepCopy()}}
}

// asks is a new version of a pod that asks for something else.
func asks(pod *v1.Pod, generation int64, cpu, memory string) *v1.Pod {
	next := pod.DeepCopy()
	next.Generation = generation
	next.Spec.Containers[0].Resources = sized(cpu, memory).Resources
	return next
}

func conditionIn(st v1.PodStatus, t v1.PodConditionType) v1.PodCondition {
	c, _ := conditionOf(&st, t)
	return c
}

// has is the memory limit of a pod's only running container in the runtime.
func (r *rig) has() int64 {
	for _, c := range r.rt.Snapshot().Containers {
		if c.State == fakecri.Running {
			return c.Resources.GetMemoryLimitInBytes()
		}
	}
	return 0
}

func TestAResizeIsCarriedOutInPlaceAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.reg.Ready("api")
		pod := newPod("p", sized("1", "100Mi"))
		pod.Generation = 1
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Set(asks(pod, 2, "2", "200Mi"), "api")
		r.until("resized", time.Second, func() bool {
			st := r.status(pod.UID)
			return st.ObservedGeneration == 2 && conditionIn(st, v1.PodResizeInProgress).Status == "" && r.has() == 200<<20
		})
		st := r.status(pod.UID).ContainerStatuses[0]
		if st.RestartCount != 0 || st.AllocatedResources.Cpu().String() != "2" || st.Resources.Limits.Memory().String() != "200Mi" {
			t.Errorf("status %+v", st)
		}
		// No status names the new generation as done before it was.
		for _, st := range r.e.statuses[pod.UID] {
			if c := st.ContainerStatuses; st.ObservedGeneration == 2 && conditionIn(st, v1.PodResizeInProgress).Status == "" && c[0].Resources.Limits.Memory().String() != "200Mi" {
				t.Errorf("told as done: %+v", c[0].Resources)
			}
		}
		said := strings.Join(r.e.said(), "\n")
		for _, want := range []string{
			`Normal ResizeStarted Pod resize started: {"containers":[{"name":"c0","resources":{"limits":{"cpu":"2","memory":"200Mi"},"requests":{"cpu":"2","memory":"200Mi"}}}],"generation":2}`,
			"Normal ResizeCompleted Pod resize completed: {", "cgroup raise 200Mi", "cgroup fit 200Mi",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is missing in\n%s", want, said)
			}
		}
	})
}

func TestResizesThatDoNotFitWaitAndAreTakenInTurnWhenOthersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.reg.Ready("api")
		r.capacity = 4000
		big, one, important := newPod("big", sized("2", "10Mi")), newPod("one", sized("500m", "10Mi")), newPod("important", sized("500m", "10Mi"))
		high := int32(1000)
		important.Spec.Priority = &high
		for _, pod := range []*v1.Pod{big, one, important} {
			pod.Generation = 1
			r.reg.Set(pod, "api")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		}
		deferred := func(pod *v1.Pod) func() bool {
			return func() bool {
				return conditionIn(r.status(pod.UID), v1.PodResizePending).Reason == v1.PodReasonDeferred
			}
		}
		for _, pod := range []*v1.Pod{one, important} {
			r.reg.Set(asks(pod, 2, "3", "10Mi"), "api")
			r.until("deferred", time.Second, deferred(pod))
		}
		if st := r.status(one.UID); st.ContainerStatuses[0].AllocatedResources.Cpu().String() != "500m" || st.ObservedGeneration != 2 {
			t.Errorf("a resize that waits shows %+v", st.ContainerStatuses[0])
		}
		r.reg.Remove(big.UID, "api")
		r.until("the important one is resized", time.Minute, func() bool {
			st := r.status(important.UID)
			return conditionIn(st, v1.PodResizePending).Status == "" && st.ContainerStatuses[0].AllocatedResources.Cpu().String() == "3"
		})
		if !deferred(one)() {
			t.Error("both were taken, but only one fits")
		}
		r.reg.Set(asks(important, 3, "100m", "10Mi"), "api")
		r.until("the other one has its turn", time.Second, func() bool {
			return r.status(one.UID).ContainerStatuses[0].AllocatedResources.Cpu().String() == "3"
		})
		if said := strings.Join(r.e.said(), "\n"); !strings.Contains(said, "Warning ResizeDeferred Pod resize OutOfcpu: {") || !strings.Contains(said, `"error":"`) {
			t.Errorf("events\n%s", said)
		}
	})
}

// A podsync that is killed right after a resize was in effect has not written that down,
// and a kubelet would carry it out again, if need be with a restart.
func TestAResizeThatWasToldAsInEffectIsKeptAsThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := sizedPodIsReady(t)
		bigger := asks(pod, 2, "2", "20Mi")
		r.reg.Set(bigger, "api")
		r.until("resized", time.Second, func() bool {
			st := r.status(pod.UID)
			return st.ObservedGeneration == 2 && conditionIn(st, v1.PodResizeInProgress).Status == ""
		})
		r.stop()
		bigger.Status = r.status(pod.UID)
		r.start()
		if e, _ := r.store.Get(pod.UID); e.Before == nil {
			t.Fatal("it was written down") // only Run would have
		}
		r.reg.Set(bigger, "api")
		r.reg.Ready("api")
		r.until("it is in effect", time.Second, func() bool {
			e, there := r.store.Get(pod.UID)
			return there && e.Before == nil
		})
	})
}

func TestAllocationsOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.reg.Ready("api")
		r.capacity = 3000
		resized, waits := newPod("resized", sized("1", "10Mi")), newPod("waits", sized("1", "10Mi"))
		for _, pod := range []*v1.Pod{resized, waits} {
			pod.Generation = 1
			r.reg.Set(pod, "api")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		}
		resized2, waits2 := asks(resized, 2, "2", "20Mi"), asks(waits, 2, "2", "20Mi")
		r.reg.Set(resized2, "api")
		r.until("resized", time.Second, func() bool { return r.status(resized.UID).ContainerStatuses[0].Resources.Limits.Cpu().String() == "2" })
		before := len(r.rt.Snapshot().Containers)
		r.stop()
		resized2.Status, waits2.Status = r.status(resized.UID), r.status(waits.UID)
		r.start()
		r.reg.Set(resized2, "api")
		// This one has asked while nobody was there.
		r.reg.Set(waits2, "api")
		r.reg.Ready("api")
		r.until("the one that asked meanwhile waits", time.Minute, func() bool {
			return conditionIn(r.status(waits.UID), v1.PodResizePending).Reason == v1.PodReasonDeferred
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := r.status(resized.UID).ContainerStatuses[0]; st.AllocatedResources.Cpu().String() != "2" || st.RestartCount != 0 {
			t.Errorf("resized: %+v", st)
		}
		if st := r.status(waits.UID).ContainerStatuses[0]; st.AllocatedResources.Cpu().String() != "1" || st.RestartCount != 0 {
			t.Errorf("waits: %+v", st)
		}
		if n := len(r.rt.Snapshot().Containers); n != before {
			t.Errorf("%d containers became %d", before, n)
		}
	})
}

// The pods of a list come one after the other, and the first of them are at work before
// the last is known: what that one has is not free.
func TestNoResizeIsAllocatedBeforeAllPodsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.capacity = 3000
		r.reg.Ready("api")
		waits, last := newPod("waits", sized("1", "10Mi")), newPod("last", sized("2", "10Mi"))
		for _, pod := range []*v1.Pod{waits, last} {
			pod.Generation = 1
			r.reg.Set(pod, "api")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		}
		bigger := asks(waits, 2, "2", "10Mi")
		r.reg.Set(bigger, "api")
		pending := func() v1.PodCondition { return conditionIn(r.status(waits.UID), v1.PodResizePending) }
		r.until("it waits", time.Minute, func() bool { return pending().Reason == v1.PodReasonDeferred })
		told := pending()
		r.stop()
		bigger.Status, last.Status = r.status(waits.UID), r.status(last.UID)
		events := len(r.e.said())
		r.start()
		r.reg.Set(bigger, "api")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := pending(); got != told {
			t.Errorf("before all are known: %+v, want as it was told: %+v", got, told)
		}
		r.reg.Set(last, "api")
		r.reg.Ready("api")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := pending(); got.Reason != v1.PodReasonDeferred || !got.LastTransitionTime.Equal(&told.LastTransitionTime) {
			t.Errorf("when they are: %+v", got)
		}
		if got := r.status(waits.UID).ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" {
			t.Errorf("it has %s cpus", got)
		}
		if said := strings.Join(r.e.said()[events:], "\n"); strings.Contains(said, "Resize") {
			t.Errorf("told anew:\n%s", said)
		}
		r.reg.Remove(last.UID, "api")
		r.until("it has its turn", time.Minute, func() bool {
			return r.status(waits.UID).ContainerStatuses[0].AllocatedResources.Cpu().String() == "2"
		})
	})
}

// A resize that came while nobody was there is decided on when all pods are known, though
// nothing else happens then.
func TestAResizeThatCameMeanwhileIsAllocatedOnceAllPodsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := sizedPodIsReady(t)
		r.stop()
		bigger := asks(pod, 2, "2", "10Mi")
		bigger.Status = r.status(pod.UID)
		r.start()
		r.reg.Set(bigger, "api")
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := conditionIn(r.status(pod.UID), v1.PodResizePending); c.Reason != v1.PodReasonDeferred || c.ObservedGeneration != 2 {
			t.Errorf("before all are known it looks done: %+v", c)
		}
		r.reg.Ready("api")
		r.until("resized", time.Second, func() bool {
			st := r.status(pod.UID)
			return st.ContainerStatuses[0].AllocatedResources.Cpu().String() == "2" && conditionIn(st, v1.PodResizeInProgress).Status == ""
		})
		if said := r.eventsWith("ResizeDeferred"); len(said) > 0 {
			t.Errorf("nobody has decided that it waits: %q", said)
		}
	})
}

// That it waits is said once it was decided, and says why.
func TestAResizeThatCameMeanwhileIsSaidToWaitOnceThatWasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := sizedPodIsReady(t)
		for range 2 {
			r.stop()
			bigger := asks(pod, 2, "90", "10Mi")
			bigger.Status = r.status(pod.UID)
			r.start()
			r.capacity = 3000
			r.reg.Set(bigger, "api")
			time.Sleep(time.Minute)
			r.reg.Ready("api")
			time.Sleep(time.Minute)
			synctest.Wait()
			if said := r.eventsWith("ResizeDeferred"); len(said) != 1 || !strings.Contains(said[0], "90000 of 3000") {
				t.Errorf("events %q", said)
			}
		}
	})
}

// A pod that was admitted and has no sandbox, for it waits for an image or lost it
// with the machine, is not taken for one of the size that its spec asks for since.
func TestWhatAPodWasAdmittedWithOutlivesTheProcessThoughNothingOfItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.reg.Ready("api")
		r.capacity = 3000
		pod := newPod("p", sized("1", "10Mi"))
		pod.Generation = 1
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		next := asks(pod, 2, "90", "10Mi")
		r.reg.Set(next, "api")
		r.until("it waits", time.Second, func() bool {
			return conditionIn(r.status(pod.UID), v1.PodResizePending).Status == v1.ConditionTrue
		})
		time.Sleep(time.Second)
		r.stop()
		r.rt.Wipe()
		started := r.status(pod.UID).StartTime
		next.Status = v1.PodStatus{Phase: v1.PodPending, StartTime: started} // no container was told of
		r.start()
		r.reg.Set(next, "api")
		r.reg.Ready("api")
		r.until("ready again", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		st := r.status(pod.UID)
		if got := st.ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" || conditionIn(st, v1.PodResizePending).Status != v1.ConditionTrue {
			t.Errorf("it has %s cpus; %+v", got, st.Conditions)
		}
		if said := strings.Join(r.e.said(), "\n"); strings.Contains(said, "ResizeStarted") {
			t.Errorf("events\n%s", said)
		}
	})
}

// The Node may change in the moment in which a pod is taken over, and what its spec
// asks for meanwhile is allocated then: it has yet to be kept and carried out.
func TestWhatIsAllocatedWhileAPodIsTakenOverIsCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.reg.Ready("api")
		synctest.Wait()
		pod := newPod("p", sized("1", "10Mi"))
		next := asks(pod, 2, "2", "20Mi")
		if err := r.store.Put(t.Context(), pod.UID, allocation.Entry{Allocation: resize.Of(pod), Generation: 1}); err != nil {
			t.Fatal(err)
		}
		r.reg.mu.Lock()
		h, w := newHeld(r.reg, pod.UID, 1)
		r.reg.pods[pod.UID] = h
		h.pod, h.source, w.state.Desired = next, "api", next
		r.reg.mu.Unlock()
		had, ok := r.reg.accept(pod.UID, time.Time{})
		r.reg.Recheck()
		w.resume(had)
		w.takeGrant(time.Now())
		if got := w.state.Resize.Next; !ok || got == nil || !got.Equal(resize.Of(next)) {
			t.Errorf("what is to be kept and carried out: %+v", got)
		}
		if w.state.Pod.Spec.Containers[0].Resources.Limits.Memory().String() != "10Mi" {
			t.Errorf("it counts as carried out: %+v", w.state.Pod.Spec.Containers[0].Resources)
		}
		r.reg.mu.Lock()
		delete(r.reg.pods, pod.UID) // nobody runs it
		r.reg.mu.Unlock()
	})
}

// A kubelet's file does not say whether what it allocated is in effect: the kubelet may
// have been killed, or the machine, before it told of that.
func TestAResizeThatAKubeletAllocatedAndDidNotComeToIsCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := sizedPodIsReady(t)
		r.stop()
		resized := asks(pod, 2, "2", "20Mi")
		resized.Status = r.status(pod.UID)
		if err := r.store.Put(t.Context(), pod.UID, allocation.Entry{Allocation: resize.Of(resized)}); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.reg.Set(resized, "api")
		r.reg.Ready("api")
		r.until("what runs is what is allocated", time.Minute, func() bool {
			kernel := r.rt.Snapshot().Containers[0].Resources
			return kernel.GetCpuQuota() == 2*kernel.GetCpuPeriod()
		})
		r.until("it is told", time.Minute, func() bool {
			st := r.status(pod.UID)
			return st.ObservedGeneration == 2 && conditionIn(st, v1.PodResizeInProgress).Status == ""
		})
		if st := r.status(pod.UID).ContainerStatuses[0]; st.RestartCount != 0 {
			t.Errorf("it was restarted: %+v", st)
		}
	})
}

func TestAResizeOutlivesALossOfWhatWasKeptOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		told bool // the status had come to tell of the resize
		back bool // the spec asks again for what it had at first
		want string
	}{
		"the status tells it":                        {told: true, want: "2"},
		"nobody tells it: the container is put back": {want: "1"},
		"the spec has changed back meanwhile":        {told: true, back: true, want: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
				r.reg.Ready("api")
				r.capacity = 3000
				pod := newPod("p", sized("1", "10Mi"))
				pod.Generation = 1
				r.reg.Set(pod, "api")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				before := r.status(pod.UID)
				resized := asks(pod, 2, "2", "20Mi")
				r.reg.Set(resized, "api")
				r.until("resized", time.Second, func() bool { return r.status(pod.UID).ContainerStatuses[0].Resources.Limits.Cpu().String() == "2" })
				r.stop()
				resized.Status = r.status(pod.UID)
				if !tc.told {
					resized.Status = before
					r.capacity = 1000 // it would not be allocated again
				}
				if tc.back {
					st := resized.Status
					resized = asks(pod, 3, "1", "10Mi")
					resized.Status = st
				}
				r.spoiled = true
				if err := os.WriteFile(r.path, []byte("{half"), 0o600); err != nil {
					t.Fatal(err)
				}
				r.start()
				r.reg.Set(resized, "api")
				r.reg.Ready("api")
				r.until("what runs is what is allocated", time.Minute, func() bool {
					c := r.status(pod.UID).ContainerStatuses
					kernel := r.rt.Snapshot().Containers[0].Resources
					return len(c) == 1 && c[0].AllocatedResources.Cpu().String() == tc.want && kernel.GetCpuQuota() == kernel.GetCpuPeriod()*int64(tc.want[0]-'0')
				})
				if st := r.status(pod.UID).ContainerStatuses[0]; st.RestartCount != 0 {
					t.Errorf("it was restarted: %+v", st)
				}
			})
		})
	}
}

func TestAContainerThatIsRestartedForAResizeIsNeverShownAsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
		r.reg.Ready("api")
		pod := newPod("p", sized("1", "100Mi"))
		pod.Generation, pod.Spec.RestartPolicy = 1, v1.RestartPolicyOnFailure
		pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Set(asks(pod, 2, "1", "200Mi"), "api")
		r.until("resized", time.Minute, func() bool {
			st := r.status(pod.UID)
			return st.ObservedGeneration == 2 && conditionIn(st, v1.PodResizeInProgress).Status == "" && r.has() == 200<<20 && isReady(st)
		})
		for _, st := range r.e.statuses[pod.UID] {
			if st.ContainerStatuses[0].State.Terminated != nil {
				t.Errorf("shown as ended: %+v", st.ContainerStatuses[0].State.Terminated)
			}
		}
	})
}

// sizedPodIsReady is a rig with a pod of one processor and 10Mi that is ready.
func sizedPodIsReady(t *testing.T) (*rig, *v1.Pod) {
	r := newRig(t, fakecri.Config{Images: []string{"img:1"}})
	r.reg.Ready("api")
	pod := newPod("p", sized("1", "10Mi"))
	pod.Generation = 1
	r.reg.Set(pod, "api")
	r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
	return r, pod
}
