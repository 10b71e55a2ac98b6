package status

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

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

func TestWithoutAnApiserverAStatusStaysOnTheNodeAndFinishDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{}, Deps{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.Run(ctx) }()
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
		w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		if err := w.Finish(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if st, ok := w.Get("1"); !ok || st.Phase != v1.PodRunning {
			t.Fatalf("Get: %v %v", st, ok)
		}
	})
}
