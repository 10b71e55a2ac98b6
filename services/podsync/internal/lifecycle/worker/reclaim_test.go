package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// ended sets a pod that has ended and that the apiserver knows to have.
func (r *rig) ended(name string) *v1.Pod {
	pod := newPod(name, v1.Container{Image: "job:1"})
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	r.reg.Set(pod, "api")
	r.until(name+" has ended", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
	told := pod.DeepCopy()
	told.Status = r.status(pod.UID)
	r.reg.Set(told, "api")
	return told
}

func TestReclaimRemovesWhatHasEndedAndCountsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := ""
		r := newRig(t, fakecri.Config{
			Images:  []string{"app:1", "job:1"},
			Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{}), "job:1": fakecri.Exits(time.Second, 1)},
			Faults: func(_ context.Context, m string, req any) fakecri.Fault {
				if q, ok := req.(*runtimeapi.RemoveContainerRequest); ok && q.GetContainerId() == stuck {
					return fakecri.Fault{Err: status.Error(codes.Unknown, "device or resource busy")}
				}
				return fakecri.Fault{}
			},
		})
		if _, err := r.reg.Reclaim(t.Context()); !errors.Is(err, ErrNotAllKnown) {
			t.Errorf("before all is known: %v", err)
		}
		r.reg.Ready("api")
		running := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(running, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(running.UID)) })
		r.ended("job")
		busy := r.ended("busy")
		synctest.Wait()
		time.Sleep(10 * time.Second)
		for _, c := range r.rt.Snapshot().Containers {
			if c.PodUID() == string(busy.UID) {
				stuck = c.ID
			}
		}
		for _, want := range []int{2, 0} {
			freed, err := r.reg.Reclaim(t.Context())
			if err != nil || freed.Removed != want || len(freed.Failed) != 1 || !strings.Contains(freed.Failed[0], "ns/busy") || !strings.Contains(freed.Failed[0], "device or resource busy") {
				t.Errorf("%+v, %v", freed, err)
			}
			if got := r.rt.Snapshot(); len(got.Containers) != 2 || len(got.Sandboxes) != 2 {
				t.Errorf("%d containers, %d sandboxes are left", len(got.Containers), len(got.Sandboxes))
			}
		}
		stuck = ""
		time.Sleep(time.Minute)
		if freed, err := r.reg.Reclaim(t.Context()); err != nil || freed.Removed != 2 || len(freed.Failed) != 0 {
			t.Errorf("when it is free: %+v, %v", freed, err)
		}
		if !isReady(r.status(running.UID)) {
			t.Error("a pod that runs was touched")
		}
	})
}

func TestReclaimDoesNotWaitForARuntimeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := ""
		r := newRig(t, fakecri.Config{
			Images: []string{"job:1"}, Scripts: map[string]fakecri.Script{"job:1": fakecri.Exits(time.Second, 1)},
			Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
				q, ok := req.(*runtimeapi.RemoveContainerRequest)
				return fakecri.Fault{Hang: ok && q.GetContainerId() == stuck}
			},
		})
		r.reg.Ready("api")
		hung := r.ended("hung")
		r.ended("job")
		time.Sleep(10 * time.Second)
		for _, c := range r.rt.Snapshot().Containers {
			if c.PodUID() == string(hung.UID) {
				stuck = c.ID
			}
		}
		start := time.Now()
		freed, err := r.reg.Reclaim(t.Context())
		if took := time.Since(start); err != nil || took != removal || freed.Removed != 2 || len(freed.Failed) != 1 || !strings.Contains(freed.Failed[0], "pods: 1") {
			t.Errorf("after %s %+v, %v", took, freed, err)
		}
	})
}

func TestReclaimEndsWithItsContextAndWithPodsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{
			Images: []string{"job:1"}, Scripts: map[string]fakecri.Script{"job:1": fakecri.Exits(time.Second, 1)},
			Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
				return fakecri.Fault{Hang: m == "RemoveContainer"}
			},
		})
		r.reg.Ready("api")
		r.ended("job")
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.reg.Reclaim(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		time.AfterFunc(time.Second, r.stop)
		if _, err := r.reg.Reclaim(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestReclaimWaitsForWhatHasJustEndedAndIsStillBeingTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := 3 * time.Second
		r := newRig(t, fakecri.Config{
			Images: []string{"job:1"}, Scripts: map[string]fakecri.Script{"job:1": fakecri.Exits(time.Second, 1)},
			Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
				if m == "StopPodSandbox" {
					return fakecri.Fault{Delay: slow}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		r.ended("job")
		began := time.Now()
		if freed, err := r.reg.Reclaim(t.Context()); err != nil || freed.Removed != 2 || len(freed.Failed) != 0 {
			t.Errorf("%+v, %v", freed, err)
		}
		if took := time.Since(began); took > slow+2*time.Second {
			t.Errorf("it took %s", took)
		}

		slow = time.Hour
		r.ended("stuck")
		time.Sleep(5 * time.Second)
		began = time.Now()
		if freed, err := r.reg.Reclaim(t.Context()); err != nil || freed.Removed != 0 || len(freed.Failed) != 0 {
			t.Errorf("of what is not taken down: %+v, %v", freed, err)
		}
		if took := time.Since(began); took > justEnded-5*time.Second {
			t.Errorf("what is not taken down was waited for %s", took)
		}
		began = time.Now()
		if _, err := r.reg.Reclaim(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("what is not taken down was waited for again, for %s: %v", time.Since(began), err)
		}
	})
}

func TestReclaimWaitsForTheApiserverToKnowWhatHasJustEndedWhenTheDiskCannotKeepIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"job:1"}, Scripts: map[string]fakecri.Script{"job:1": fakecri.Exits(time.Second, 1)}})
		r.put = func() error { return errors.New("no space left on device") }
		r.reg.Ready("api")
		pod := newPod("job", v1.Container{Image: "job:1"})
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		r.reg.Set(pod, "api")
		r.until("it has ended", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		time.AfterFunc(2*time.Second, func() {
			told := pod.DeepCopy()
			told.Status = r.status(pod.UID)
			r.reg.Set(told, "api")
		})
		for _, want := range []int{2, 0} {
			if freed, err := r.reg.Reclaim(t.Context()); err != nil || freed.Removed != want || len(freed.Failed) != 0 {
				t.Errorf("%+v, %v", freed, err)
			}
		}
	})
}

func TestWhatHasEndedIsReclaimedThoughTheApiserverIsAway(t *testing.T) {
	full := errors.New("no space left on device")
	for name, tc := range map[string]struct {
		evicted, deleted bool
		disk             error
		removed          int
		failed           string
	}{
		"it has ended by itself":                         {removed: 2},
		"the node has ended it":                          {evicted: true, removed: 2},
		"it is deleted":                                  {deleted: true, removed: 2},
		"the disk is full, and it could start again":     {disk: full, failed: "keep the last status"},
		"the disk is full, and its decision is kept":     {evicted: true, disk: full, removed: 2},
		"the disk is full, and nobody wants it to start": {deleted: true, disk: full, removed: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"job:1"}, Scripts: map[string]fakecri.Script{"job:1": fakecri.Exits(time.Minute, 3)}})
				r.e.away = true
				r.reg.Ready("api")
				pod := newPod("job", v1.Container{Image: "job:1"})
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
				r.reg.Set(pod, "api")
				r.until("ready", 30*time.Second, func() bool { return isReady(r.status(pod.UID)) })
				pod = pod.DeepCopy()
				pod.Status = r.status(pod.UID) // what the apiserver was told last
				if tc.evicted {
					if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(1), nil); err != nil {
						t.Fatal(err)
					}
				}
				if tc.deleted {
					at, grace := metav1.Now(), int64(1)
					pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
					r.reg.Set(pod, "api")
				}
				r.until("it has ended", 2*time.Minute, func() bool { return podutil.TerminalPhase(r.status(pod.UID).Phase) })
				r.put = func() error { return tc.disk }
				freed, err := r.reg.Reclaim(t.Context())
				if err != nil || freed.Removed != tc.removed || tc.failed == "" != (len(freed.Failed) == 0) || !strings.Contains(strings.Join(freed.Failed, ""), tc.failed) {
					t.Errorf("%+v, %v", freed, err)
				}
				if got := r.rt.Snapshot(); len(got.Containers)+len(got.Sandboxes) != 2-tc.removed {
					t.Errorf("left: %+v", got)
				}
				last := r.status(pod.UID)
				r.stop()
				r.start()
				r.reg.Set(pod, "api")
				r.reg.Ready("api")
				time.Sleep(5 * time.Minute)
				if got := r.status(pod.UID); !podutil.TerminalPhase(got.Phase) || got.Reason != last.Reason || tc.disk == nil && !equality.Semantic.DeepEqual(got, last) {
					t.Errorf("after a restart: %+v\nbefore: %+v", got, last)
				}
				if got := r.rt.Snapshot(); len(got.Containers)+len(got.Sandboxes) != 2-tc.removed {
					t.Errorf("after a restart there is %+v", got)
				}
			})
		})
	}
}

// An evicted pod of which an init container was never reached makes room too.
func TestWhoIsEvictedInItsFirstInitContainerMakesRoomToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"job:1"}, Scripts: map[string]fakecri.Script{"job:1": fakecri.Exits(time.Hour, 3)}})
		r.reg.Ready("api")
		pod := newPod("job", v1.Container{Image: "job:1"})
		pod.Spec.InitContainers = []v1.Container{{Name: "i0", Image: "job:1", ImagePullPolicy: v1.PullIfNotPresent}, {Name: "i1", Image: "job:1", ImagePullPolicy: v1.PullIfNotPresent}}
		r.reg.Set(pod, "api")
		time.Sleep(time.Minute)
		if _, err := r.reg.Stop(t.Context(), pod.UID, evicted(1), nil); err != nil {
			t.Fatal(err)
		}
		r.until("it has ended", 2*time.Minute, func() bool { return podutil.TerminalPhase(r.status(pod.UID).Phase) })
		told := pod.DeepCopy()
		told.Status = r.status(pod.UID)
		r.reg.Set(told, "api") // the apiserver knows
		time.Sleep(time.Second)
		began := time.Now()
		if freed, err := r.reg.Reclaim(t.Context()); err != nil || freed.Removed != 2 {
			t.Errorf("after %s %+v, %v; %+v", time.Since(began), freed, err, told.Status)
		}
	})
}
