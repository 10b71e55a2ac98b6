package status

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// startBehind is start behind something that answers each PATCH with 404 as long as it
// is set: a webhook that does not find what it looks for, a proxy without a backend.
func startBehind(t *testing.T) (b *bench, wrong *atomic.Bool) {
	t.Helper()
	wrong = &atomic.Bool{}
	return start(t, fakeapiserver.Config{Faults: func(r fakeapiserver.Request) fakeapiserver.Fault {
		if r.Verb == "patch" && wrong.Load() {
			return fakeapiserver.Fault{Status: 404}
		}
		return fakeapiserver.Fault{}
	}}, nil), wrong
}

func TestAStatusIsWrittenThoughSomebodyHasSaidOnceThatThereIsNoSuchPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, wrong := startBehind(t)
		pod := b.create("a")
		wrong.Store(true)
		b.w.Set(pod, running("10.0.0.1"))
		time.Sleep(time.Minute)
		if n := b.patches(); n < 2 || n > 8 {
			t.Errorf("%d requests within a minute", n)
		}
		wrong.Store(false)
		time.Sleep(lastRetry)
		synctest.Wait()
		if st := b.api.Pod("default", "a").Status; st.Phase != v1.PodRunning {
			t.Errorf("the pod is not said to run: %q", st.Phase)
		}
	})
}

func TestAStatusIsWrittenThoughTheApiserverWasAwayWhenThereWasSaidToBeNoSuchPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, wrong := startBehind(t)
		first, other := b.create("a"), b.create("b")
		wrong.Store(true)
		b.w.Set(first, running("10.0.0.1"))
		synctest.Wait()
		wrong.Store(false)
		b.api.Partition(fakeapiserver.Refuse)
		b.w.Set(other, running("10.0.0.2"))
		time.Sleep(time.Second)
		b.api.Heal() // what has failed is sent as soon as the other is accepted
		time.Sleep(lastRetry)
		synctest.Wait()
		if st := b.api.Pod("default", "a").Status; st.Phase != v1.PodRunning {
			t.Errorf("the pod is not said to run: %q", st.Phase)
		}
	})
}

func TestAPodIsNotDeletedWithoutItsLastStatusThoughThereIsSaidToBeNoSuchPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, wrong := startBehind(t)
		pod := b.create("a")
		wrong.Store(true)
		ended := running("10.0.0.1")
		ended.Phase = v1.PodSucceeded
		b.w.Set(pod, ended)
		synctest.Wait()
		if err := b.w.Finish(t.Context(), pod); err == nil || b.api.Pod("default", "a") == nil {
			t.Fatalf("the pod is over before it is told how it ended: %v", err)
		}
		synctest.Wait() // it was asked once more
		wrong.Store(false)
		time.Sleep(lastRetry)
		synctest.Wait()
		if err := b.w.Finish(t.Context(), pod); err != nil || b.api.Pod("default", "a") != nil {
			t.Fatalf("the pod is there: %v", err)
		}
		if told := b.api.StatusHistory("default", "a"); len(told) != 1 || told[0].New.(*v1.Pod).Status.Phase != v1.PodSucceeded {
			t.Errorf("told: %+v", told)
		}
	})
}

func TestAPodThatIsReallyGoneIsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := startBehind(t)
		pod := b.create("a")
		now := int64(0)
		if err := b.api.Admin().CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		b.w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		began := time.Now()
		if err := b.w.Finish(t.Context(), pod); err != nil || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		b.w.Forget(pod.UID)
		asked := b.patches()
		time.Sleep(time.Minute)
		if n := b.patches(); n != asked {
			t.Errorf("%d requests for a pod that is forgotten", n-asked)
		}
	})
}

func TestWhatIsNoAnswerOfAnApiserverIsNoAcceptedStatus(t *testing.T) {
	for _, kind := range fakeapiserver.AllNonsense() {
		synctest.Test(t, func(t *testing.T) {
			var nonsense atomic.Bool
			b := start(t, fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
				if nonsense.Load() {
					return fakeapiserver.Fault{Nonsense: &kind}
				}
				return fakeapiserver.Fault{}
			}}, nil)
			pod := b.create("a")
			nonsense.Store(true)
			b.w.Set(pod, running("10.0.0.1"))
			time.Sleep(time.Minute)
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := b.w.Finish(within, pod); err == nil {
				t.Errorf("%s: the pod is finished", kind.Name)
			}
			nonsense.Store(false)
			time.Sleep(time.Minute)
			if got := b.api.Pod("default", "a"); got == nil || got.Status.Phase != v1.PodRunning {
				t.Errorf("%s: a minute later its status is not written: %v", kind.Name, got)
			}
		})
	}
}
