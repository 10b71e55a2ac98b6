package status

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

type mirrorMap map[types.UID]*v1.Pod

func (m mirrorMap) Mirror(uid types.UID) (*v1.Pod, bool) {
	pod, ok := m[uid]
	return pod, ok
}

func TestTheStatusOfAStaticPodGoesToItsMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
		b.w.Set(static, running("10.0.0.1"))
		synctest.Wait()
		if b.patches() != 0 {
			t.Fatalf("without a mirror: %d patches", b.patches())
		}
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
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
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
		mirror := b.create("m").DeepCopy()
		mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
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
		mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
		began := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		mirror.Status = running("10.0.0.1")
		mirror.Status.StartTime = &began
		mirrors["static"] = mirror
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
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
		mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
		mirror.Status = running("10.0.0.1")
		mirror.Status.Phase = v1.PodSucceeded
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
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
		mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
		mirror.Status = running("10.0.0.1")
		mirrors["static"] = mirror
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
		pending := running("10.0.0.2") // what a new process plans after a boot
		pending.Phase = v1.PodPending
		b.w.Set(static, pending)
		time.Sleep(time.Minute)
		if got := b.api.Pod("default", "m").Status; got.PodIP != "10.0.0.2" || got.Phase != v1.PodRunning {
			t.Fatalf("IP %s, phase %s; want the new address and Running", got.PodIP, got.Phase)
		}
	})
}

// Right after podsync's start the node's addresses are not known, and what became of a
// static pod is known to the apiserver alone.
func TestTheAddressOfAPodOnTheHostsNetworkIsNotTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		for name, host := range map[string]bool{"host": true, "own": false} {
			pod := b.createOf(name, v1.PodSpec{NodeName: "node", HostNetwork: host, Containers: []v1.Container{{Name: "a", Image: "i"}}})
			st := running("192.0.2.1")
			st.HostIP, st.HostIPs = "192.0.2.1", []v1.HostIP{{IP: "192.0.2.1"}}
			b.w.Set(pod, st)
			synctest.Wait()
			before := b.patches()
			st = *st.DeepCopy()
			st.HostIP, st.HostIPs, st.PodIP, st.PodIPs = "", nil, "", nil
			st.ContainerStatuses[0].Ready = false
			b.w.Set(pod, st)
			time.Sleep(time.Hour)
			got := b.api.Pod("default", name).Status
			want := map[bool]string{true: "192.0.2.1"}[host]
			if got.PodIP != want || (len(got.PodIPs) > 0) != host || got.HostIP != "192.0.2.1" || len(got.HostIPs) != 1 || got.ContainerStatuses[0].Ready {
				t.Errorf("%s: %+v; want the pod's address to be %q", name, got, want)
			}
			if n := b.patches() - before; n != 1 {
				t.Errorf("%s: %d requests, want one", name, n)
			}
		}
	})
}

// The mirror is made anew while the request to the one before is under way.
func TestANewMirrorShowsTheStatusThoughARequestToTheOneBeforeWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		var slow atomic.Bool
		b := start(t, fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb == "patch" && slow.Load() {
				return fakeapiserver.Fault{Delay: 2 * time.Second, Status: 404}
			}
			return fakeapiserver.Fault{}
		}}, mirrors)
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
		mirrored := func() {
			mirror := b.create("m").DeepCopy()
			mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
			mirrors["static"] = mirror
		}
		mirrored()
		b.w.Set(static, running("10.0.0.1"))
		synctest.Wait()
		slow.Store(true)
		b.w.Set(static, running("10.0.0.2"))
		time.Sleep(time.Second)
		now := int64(0)
		if err := b.api.Admin().CoreV1().Pods("default").Delete(t.Context(), "m", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		mirrored()
		b.w.Touch("static")
		slow.Store(false)
		time.Sleep(1500 * time.Millisecond)
		if ip := b.api.Pod("default", "m").Status.PodIP; ip != "10.0.0.2" {
			t.Errorf("the new mirror shows the address %q", ip)
		}
	})
}

func TestANewMirrorShowsTheStatusAtOnceThoughTheOneBeforeIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
		mirrored := func() {
			mirror := b.create("m").DeepCopy()
			mirror.Annotations = map[string]string{podutil.AnnotationMirror: "static"}
			mirrors["static"] = mirror
		}
		mirrored()
		b.w.Set(static, running("10.0.0.1"))
		synctest.Wait()
		now := int64(0)
		if err := b.api.Admin().CoreV1().Pods("default").Delete(t.Context(), "m", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		b.w.Set(static, running("10.0.0.2"))
		time.Sleep(time.Second)
		synctest.Wait()
		mirrored()
		b.w.Touch("static")
		synctest.Wait()
		if ip := b.api.Pod("default", "m").Status.PodIP; ip != "10.0.0.2" {
			t.Errorf("the new mirror shows the address %q", ip)
		}
	})
}
