package status

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// bench is a Writer on a fake apiserver in a synctest bubble.
type bench struct {
	*testing.T
	api *fakeapiserver.Server
	w   *Writer
}

func start(t *testing.T, cfg fakeapiserver.Config, mirrors Mirrors) *bench {
	t.Helper()
	b := &bench{T: t, api: fakeapiserver.New(cfg)}
	b.w = New(Config{}, Deps{Client: b.api.Client(), Mirrors: mirrors})
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
	return b.createOf(name, v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "c", Image: "i"}}})
}

func (b *bench) createOf(name string, spec v1.PodSpec) *v1.Pod {
	b.Helper()
	pod, err := b.api.Admin().CoreV1().Pods("default").Create(b.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: spec,
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
		pod := b.createOf("a", v1.PodSpec{
			NodeName: "node", Containers: []v1.Container{{Name: "c", Image: "i"}}, ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}},
		})
		first := running("10.0.0.1")
		first.Reason, first.Message = "R", "M"
		first.Conditions[1] = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "m"}
		first.Conditions = append(first.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue})
		b.w.Set(pod, first)
		synctest.Wait()
		_, err := b.api.Admin().CoreV1().Pods("default").Patch(t.Context(), "a", types.StrategicMergePatchType,
			[]byte(`{"status":{"resourceClaimStatuses":[{"name":"gpu","resourceClaimName":"one"}],"conditions":[{"type":"example.com/gate","status":"True"},{"type":"DisruptionTarget","status":"True","reason":"Other"}]}}`), metav1.PatchOptions{}, "status")
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
		ready := podutil.Condition(st.Conditions, v1.PodReady)
		if ready == nil || ready.Status != v1.ConditionTrue || ready.Reason != "" || ready.Message != "" {
			t.Errorf("Ready: %+v", ready)
		}
		if podutil.Condition(st.Conditions, v1.PodResizePending) != nil {
			t.Error("an owned condition that is not wanted any more stayed")
		}
		if podutil.Condition(st.Conditions, "example.com/gate") == nil || podutil.Condition(st.Conditions, v1.DisruptionTarget) == nil || len(st.ResourceClaimStatuses) != 1 {
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
		if c := podutil.Condition(b.api.Pod("default", "a").Status.Conditions, gate.Type); c != nil {
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
		first := podutil.Condition(b.api.Pod("default", "a").Status.Conditions, v1.PodReady).LastTransitionTime
		time.Sleep(time.Hour)
		st := running("10.0.0.1")
		st.ContainerStatuses[0].RestartCount = 1
		b.w.Set(pod, st)
		synctest.Wait()
		if again := podutil.Condition(b.api.Pod("default", "a").Status.Conditions, v1.PodReady).LastTransitionTime; !again.Equal(&first) {
			t.Fatalf("%v became %v", first, again)
		}
		st.Conditions[1].Status = v1.ConditionFalse
		b.w.Set(pod, st)
		synctest.Wait()
		if now := podutil.Condition(b.api.Pod("default", "a").Status.Conditions, v1.PodReady).LastTransitionTime; now.Sub(first.Time) < time.Hour-time.Second {
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
