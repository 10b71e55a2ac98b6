package status

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/source"
)

// bench is a Writer on a fake apiserver in a synctest bubble.
type bench struct {
	*testing.T
	api *fakeapiserver.Server
	w   *Writer

	mu       sync.Mutex
	accepted []v1.PodStatus
}

func start(t *testing.T, cfg fakeapiserver.Config, mirrors Mirrors) *bench {
	t.Helper()
	b := &bench{T: t, api: fakeapiserver.New(cfg)}
	b.w = New(Config{}, Deps{Client: b.api.Client(), Mirrors: mirrors, OnAccepted: func(_ types.UID, st v1.PodStatus) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.accepted = append(b.accepted, st)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.w.Run(ctx)
	}()
	synctest.Wait() // what is set before Run goes out in no order
	t.Cleanup(func() {
		cancel()
		<-done
		b.api.Close()
	})
	return b
}

func (b *bench) create(name string) *v1.Pod {
	b.Helper()
	pod, err := b.api.Admin().CoreV1().Pods("default").Create(b.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return pod
}

func running(ip string) v1.PodStatus {
	start := metav1.Now()
	return v1.PodStatus{
		Phase:     v1.PodRunning,
		StartTime: &start,
		PodIP:     ip,
		PodIPs:    []v1.PodIP{{IP: ip}},
		Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionTrue},
			{Type: v1.PodReady, Status: v1.ConditionTrue},
		},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", Ready: true, Image: "i", ContainerID: "containerd://1",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: start}},
		}},
	}
}

func pending() v1.PodStatus {
	return v1.PodStatus{
		Phase:             v1.PodPending,
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "x"}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c", Image: "i", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}},
	}
}

func (b *bench) patches() int { return b.api.Calls()["patch pods/status"] }

func TestAStatusIsOnePatchAtOnceAndNoGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		begin := time.Now()
		b.w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		if time.Since(begin) != 0 {
			t.Fatalf("virtual time passed: %v", time.Since(begin))
		}
		got := b.api.Pod("default", "a")
		if got.Status.Phase != v1.PodRunning || got.Status.PodIPs[0].IP != "10.0.0.1" || len(got.Status.ContainerStatuses) != 1 {
			t.Fatalf("status on the apiserver: %+v", got.Status)
		}
		if got.Status.StartTime == nil || got.Status.Conditions[0].LastTransitionTime.IsZero() {
			t.Fatalf("times are missing: %+v", got.Status)
		}
		b.w.Set(pod, running("10.0.0.1"))
		b.w.Set(got, running("10.0.0.1"))
		time.Sleep(time.Minute)
		if b.patches() != 1 || b.api.Calls()["get pods"] != 0 {
			t.Fatalf("requests: %v", b.api.Calls())
		}
		if len(b.accepted) == 0 || b.accepted[0].Phase != v1.PodRunning {
			t.Fatalf("accepted: %+v", b.accepted)
		}
	})
}

func TestAFastPodNeedsOnePatchAndASlowOneTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		fast, slow := b.create("fast"), b.create("slow")
		b.w.Set(fast, pending())
		b.w.Set(slow, pending())
		time.Sleep(140 * time.Millisecond)
		b.w.Set(fast, running("10.0.0.1"))
		synctest.Wait()
		if n := len(b.api.StatusHistory("default", "fast")); n != 1 {
			t.Fatalf("fast pod: %d status writes, want 1", n)
		}
		time.Sleep(time.Second)
		b.w.Set(slow, running("10.0.0.2"))
		synctest.Wait()
		if n := len(b.api.StatusHistory("default", "slow")); n != 2 {
			t.Fatalf("slow pod: %d status writes, want 2", n)
		}
	})
}

func TestClearedFieldsAreClearedAndForeignOnesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		first := running("10.0.0.1")
		first.Reason, first.Message = "R", "M"
		first.Conditions[1] = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "m"}
		first.Conditions = append(first.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue})
		b.w.Set(pod, first)
		synctest.Wait()
		_, err := b.api.Admin().CoreV1().Pods("default").Patch(t.Context(), "a", types.StrategicMergePatchType,
			[]byte(`{"status":{"nominatedNodeName":"n","conditions":[{"type":"example.com/gate","status":"True"},{"type":"DisruptionTarget","status":"True","reason":"Other"}]}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		// The object is an old one: the writer does not know of the foreign conditions.
		b.w.Set(pod, running("10.0.0.2"))
		synctest.Wait()
		st := b.api.Pod("default", "a").Status
		if st.Reason != "" || st.Message != "" || len(st.PodIPs) != 1 || st.PodIPs[0].IP != "10.0.0.2" {
			t.Errorf("old values stayed: %+v", st)
		}
		ready := condition(st.Conditions, v1.PodReady)
		if ready == nil || ready.Status != v1.ConditionTrue || ready.Reason != "" || ready.Message != "" {
			t.Errorf("Ready: %+v", ready)
		}
		if condition(st.Conditions, v1.PodResizePending) != nil {
			t.Error("an owned condition that is not wanted any more stayed")
		}
		if condition(st.Conditions, "example.com/gate") == nil || condition(st.Conditions, v1.DisruptionTarget) == nil || st.NominatedNodeName != "n" {
			t.Errorf("foreign fields are lost: %+v", st)
		}
	})
}

func TestAStaleCopyOfAForeignConditionIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a").DeepCopy()
		gate := v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionFalse}
		pod.Status.Conditions = []v1.PodCondition{gate}
		want := running("10.0.0.1")
		want.Conditions = append(want.Conditions, gate)
		b.w.Set(pod, want)
		synctest.Wait()
		if c := condition(b.api.Pod("default", "a").Status.Conditions, gate.Type); c != nil {
			t.Fatalf("written: %+v", c)
		}
	})
}

func TestTransitionTimesChangeOnlyWithTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		b.w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		first := condition(b.api.Pod("default", "a").Status.Conditions, v1.PodReady).LastTransitionTime
		time.Sleep(time.Hour)
		st := running("10.0.0.1")
		st.ContainerStatuses[0].RestartCount = 1
		b.w.Set(pod, st)
		synctest.Wait()
		if again := condition(b.api.Pod("default", "a").Status.Conditions, v1.PodReady).LastTransitionTime; !again.Equal(&first) {
			t.Fatalf("%v became %v", first, again)
		}
		st.Conditions[1].Status = v1.ConditionFalse
		b.w.Set(pod, st)
		synctest.Wait()
		if now := condition(b.api.Pod("default", "a").Status.Conditions, v1.PodReady).LastTransitionTime; now.Sub(first.Time) < time.Hour-time.Second {
			t.Fatalf("a changed condition kept %v", now)
		}
	})
}

func TestAnOutageDelaysAndTheNewestStatusWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pods := []*v1.Pod{b.create("a"), b.create("b"), b.create("c")}
		b.api.Partition(fakeapiserver.Refuse)
		for _, pod := range pods {
			b.w.Set(pod, running("10.0.0.1"))
		}
		time.Sleep(time.Minute)
		for _, pod := range pods {
			b.w.Set(pod, running("10.0.0.2"))
		}
		time.Sleep(time.Minute)
		b.api.Heal()
		time.Sleep(lastRetry)
		for _, pod := range pods {
			history := b.api.StatusHistory("default", pod.Name)
			if len(history) != 1 || history[0].New.(*v1.Pod).Status.PodIP != "10.0.0.2" {
				t.Errorf("pod %s: %d writes", pod.Name, len(history))
			}
		}
	})
}

func TestEndsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Delay: time.Second}
		}}, nil)
		var last *v1.Pod
		for _, name := range strings.Split("abcdefghijklmnopqrst", "") {
			last = b.create(name)
			if name != "t" {
				b.w.Set(last, running("10.0.0.1"))
			}
		}
		st := running("10.0.0.1")
		st.Phase = v1.PodSucceeded
		b.w.Set(last, st)
		time.Sleep(2500 * time.Millisecond)
		if b.api.Pod("default", "t").Status.Phase != v1.PodSucceeded {
			t.Fatal("the end waited behind others")
		}
		if b.api.Pod("default", "s").Status.Phase == v1.PodRunning {
			t.Fatal("the test shows nothing: all were sent")
		}
		time.Sleep(time.Minute)
	})
}

func TestFinishDeletesAfterTheFinalStatusOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 3
		b := start(t, fakeapiserver.Config{Faults: func(r fakeapiserver.Request) fakeapiserver.Fault {
			if r.Verb == "patch" && failures > 0 {
				failures--
				return fakeapiserver.Fault{Status: 503}
			}
			return fakeapiserver.Fault{}
		}}, nil)
		pod := b.create("a")
		st := running("10.0.0.1")
		st.Phase = v1.PodSucceeded
		b.w.Set(pod, st)
		if err := b.w.Finish(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if b.api.Pod("default", "a") != nil {
			t.Fatal("the object is still there")
		}
		history := b.api.StatusHistory("default", "a")
		if len(history) != 1 || history[0].New.(*v1.Pod).Status.Phase != v1.PodSucceeded {
			t.Fatalf("status writes: %d", len(history))
		}
		b.w.Forget(pod.UID)
	})
}

func TestAnotherPodOfTheNameIsNeverTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		old := b.create("a").DeepCopy()
		old.UID = "before"
		b.w.Set(old, running("10.0.0.1"))
		if err := b.w.Finish(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		now := b.api.Pod("default", "a")
		if now == nil || now.Status.Phase == v1.PodRunning {
			t.Fatalf("the new pod was touched: %+v", now)
		}
	})
}

func TestFinishGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		b.api.Partition(fakeapiserver.Blackhole)
		b.w.Set(pod, running("10.0.0.1"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := b.w.Finish(ctx, pod); err == nil || !strings.Contains(err.Error(), "final status") {
			t.Fatalf("error %v", err)
		}
	})
}

type mirrorMap map[types.UID]*v1.Pod

func (m mirrorMap) Mirror(uid types.UID) (*v1.Pod, bool) {
	pod, ok := m[uid]
	return pod, ok
}

func TestTheStatusOfAStaticPodGoesToItsMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{source.AnnotationSource: source.File}}}
		b.w.Set(static, running("10.0.0.1"))
		synctest.Wait()
		if b.patches() != 0 || len(b.accepted) != 1 {
			t.Fatalf("without a mirror: %d patches, %d accepted", b.patches(), len(b.accepted))
		}
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{source.AnnotationMirror: "static"}
		mirrors["static"] = mirror
		b.w.Touch("static")
		synctest.Wait()
		if b.api.Pod("default", "m").Status.Phase != v1.PodRunning {
			t.Fatal("the mirror shows nothing")
		}
		if err := b.w.Finish(t.Context(), static); err != nil || b.api.Pod("default", "m") == nil {
			t.Fatalf("Finish of a static pod: %v", err)
		}
	})
}

func TestTheLastStatusOfAFormerLifeIsNotWrittenOverTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		var broken atomic.Bool // asked in the apiserver's goroutine
		b := start(t, fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if broken.Load() && q.Verb == "patch" {
				return fakeapiserver.Fault{Delay: 2 * time.Second, Status: 503}
			}
			return fakeapiserver.Fault{}
		}}, mirrors)
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{source.AnnotationSource: source.File}}}
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{source.AnnotationMirror: "static"}
		mirrors["static"] = mirror
		broken.Store(true)
		ended := running("10.0.0.1")
		ended.Phase = v1.PodFailed
		b.w.Set(static, ended)
		synctest.Wait()
		time.Sleep(time.Second) // the request is under way, and will fail
		broken.Store(false)
		b.w.Forget(static.UID) // nothing of it is left
		b.w.Set(static, running("10.0.0.2"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := b.api.Pod("default", "m").Status; st.Phase != v1.PodRunning || st.PodIP != "10.0.0.2" {
			t.Errorf("the mirror shows %s, %s", st.Phase, st.PodIP)
		}
		written := b.patches()
		b.w.Forget(static.UID)
		time.Sleep(time.Minute)
		if n := b.patches(); n != written {
			t.Errorf("%d statuses of a pod that is gone were written", n-written)
		}
	})
}

func TestAStaticPodKeepsTheStartTimeThatItsMirrorHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{source.AnnotationMirror: "static"}
		began := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		mirror.Status = running("10.0.0.1")
		mirror.Status.StartTime = &began
		mirrors["static"] = mirror
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{source.AnnotationSource: source.File}}}
		b.w.Set(static, running("10.0.0.2")) // what a new process believes
		synctest.Wait()
		if got := b.api.Pod("default", "m").Status; got.PodIP != "10.0.0.2" || !got.StartTime.Equal(&began) {
			t.Fatalf("IP %s, start time %v, want 10.0.0.2 and %v", got.PodIP, got.StartTime, began)
		}
	})
}

func TestAStaticPodThatHasEndedKeepsTheAddressThatItsMirrorHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{source.AnnotationMirror: "static"}
		mirror.Status = running("10.0.0.1")
		mirror.Status.Phase = v1.PodSucceeded
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{source.AnnotationSource: source.File}}}
		ended := running("") // a new process finds its sandbox down
		ended.Phase = v1.PodSucceeded
		b.w.Set(static, ended)
		synctest.Wait()
		mirrors["static"] = mirror
		b.w.Touch("static")
		b.w.Set(static, ended)
		time.Sleep(time.Minute)
		if got := b.api.Pod("default", "m").Status; got.PodIP != "10.0.0.1" || len(got.PodIPs) != 1 {
			t.Fatalf("the address is %q, %v; want 10.0.0.1", got.PodIP, got.PodIPs)
		}
	})
}

func TestAStaticPodThatRanIsNotShownAsPendingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{source.AnnotationMirror: "static"}
		mirror.Status = running("10.0.0.1")
		mirrors["static"] = mirror
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{source.AnnotationSource: source.File}}}
		pending := running("10.0.0.2") // what a new process plans after a boot
		pending.Phase = v1.PodPending
		b.w.Set(static, pending)
		time.Sleep(time.Minute)
		if got := b.api.Pod("default", "m").Status; got.PodIP != "10.0.0.2" || got.Phase != v1.PodRunning {
			t.Fatalf("IP %s, phase %s; want the new address and Running", got.PodIP, got.Phase)
		}
	})
}

func TestWithoutAnApiserverAStatusIsAcceptedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []v1.PodStatus
		w := New(Config{}, Deps{OnAccepted: func(_ types.UID, st v1.PodStatus) { got = append(got, st) }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.Run(ctx) }()
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
		w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		if len(got) != 1 {
			t.Fatalf("accepted %d times", len(got))
		}
		if err := w.Finish(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if st, ok := w.Get("1"); !ok || st.Phase != v1.PodRunning {
			t.Fatalf("Get: %v %v", st, ok)
		}
	})
}

func TestAStatusOverwrittenByOthersIsRepairedButNotInATightLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		want := running("10.0.0.1")
		b.w.Set(pod, want)
		synctest.Wait()
		before := b.patches()
		for range 20 {
			got, err := b.api.Admin().CoreV1().Pods("default").Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(`{"status":{"podIP":"1.1.1.1"}}`), metav1.PatchOptions{}, "status")
			if err != nil {
				t.Fatal(err)
			}
			b.w.Set(got, want)
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.patches() - before - 20; n > 4 { // 20 are the others'
			t.Errorf("%d repairs within 200 ms", n)
		}
		time.Sleep(time.Minute)
		if ip := b.api.Pod("default", "a").Status.PodIP; ip != "10.0.0.1" {
			t.Errorf("not repaired: %s", ip)
		}
	})
}

func TestWhatTheApiserverDropsIsNotSentForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		want := running("10.0.0.1")
		b.w.Set(b.create("a"), want)
		synctest.Wait()
		got, err := b.api.Admin().CoreV1().Pods("default").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got.Status.PodIP = "" // as if it had been dropped: the PATCH will change nothing
		before := b.patches()
		b.w.Set(got, want)
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 1 {
			t.Fatalf("%d patches", n)
		}
	})
}
