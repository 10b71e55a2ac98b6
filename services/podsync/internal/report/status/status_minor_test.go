package status

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// starting is a pod whose sandbox is up.
func starting(ip string) v1.PodStatus {
	st := pending()
	st.PodIP, st.PodIPs = ip, []v1.PodIP{{IP: ip}}
	return st
}

func TestWhatNobodyCanActOnWaitsForWhatFollows(t *testing.T) {
	begun := metav1.Now()
	first := pending()
	first.StartTime = &begun
	up := starting("10.0.0.1")
	up.StartTime = &begun
	runs := running("10.0.0.1")
	runs.StartTime = &begun
	next := *runs.DeepCopy()
	next.ObservedGeneration = 2
	for name, tc := range map[string]struct {
		known, now v1.PodStatus
		deleting   bool
		want       time.Duration
	}{
		"a first Pending":                           {v1.PodStatus{}, first, false, 250 * time.Millisecond},
		"a sandbox that is up":                      {first, up, false, time.Second},
		"a container that runs":                     {up, runs, false, 0},
		"a new generation":                          {runs, next, false, 250 * time.Millisecond},
		"a new generation of a pod that is deleted": {runs, next, true, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, fakeapiserver.Config{}, nil)
				pod := b.create("p")
				b.w.Set(pod, tc.known)
				time.Sleep(time.Minute)
				before := len(b.api.StatusHistory("default", "p"))
				pod = pod.DeepCopy()
				if tc.deleting {
					now := metav1.Now()
					pod.DeletionTimestamp = &now
				}
				began := time.Now()
				b.w.Set(pod, tc.now)
				for len(b.api.StatusHistory("default", "p")) == before && time.Since(began) < time.Minute {
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				if took := time.Since(began).Round(10 * time.Millisecond); took != tc.want {
					t.Errorf("it was written after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

func TestAChangeThatMayWaitLessMakesTheRequestSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("p")
		b.w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		now := metav1.Now()
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &now
		st := running("10.0.0.1")
		st.ObservedGeneration = 2
		b.w.Set(pod, st)
		time.Sleep(time.Second)
		st.Conditions = append(st.Conditions, v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue})
		b.w.Set(pod, st)
		time.Sleep(300 * time.Millisecond)
		if got := b.api.Pod("default", "p").Status; got.ObservedGeneration != 2 || len(got.Conditions) != 3 {
			t.Errorf("the apiserver has %+v", got)
		}
	})
}

func TestWhatNobodyCanActOnComesAfterWhatSomebodyCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Delay: time.Second}
		}}, nil)
		names := make([]*v1.Pod, 20)
		for i := range names {
			names[i] = b.create(string(rune('a' + i)))
			b.w.Set(names[i], pending())
		}
		time.Sleep(500 * time.Millisecond) // 8 are under way, 12 wait
		b.w.Set(names[19], running("10.0.0.1"))
		time.Sleep(1900 * time.Millisecond)
		if got := b.api.Pod("default", "t").Status.Phase; got != v1.PodRunning {
			t.Errorf("the pod that runs is shown as %q: it waited behind those of which nothing is new", got)
		}
		if got := b.api.Pod("default", "s").Status.Phase; got != "" && got != v1.PodPending {
			t.Errorf("another one is %q", got)
		}
		time.Sleep(time.Minute)
	})
}
