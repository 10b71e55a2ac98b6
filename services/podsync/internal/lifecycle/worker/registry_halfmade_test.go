package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// containerd, when a start is cut short at the wrong moment, keeps the container as never
// started, with a task that it cannot delete.
func TestAPodStartsThoughTheRuntimeCannotRemoveWhatAStartCutShortHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, removals := "", 0
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})},
			Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
				switch q := req.(type) {
				case *runtimeapi.StartContainerRequest:
					if broken == "" {
						broken = q.GetContainerId()
					}
					return fakecri.Fault{Hang: broken == q.GetContainerId()}
				case *runtimeapi.RemoveContainerRequest:
					if removals++; q.GetContainerId() == broken {
						return fakecri.Fault{Err: status.Error(codes.FailedPrecondition, "cannot delete running task")}
					}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(time.Second)
		r.stop() // within the start
		r.start()
		r.reg.Set(pod, "api")
		r.reg.Ready("api")
		r.until("ready", time.Minute, func() bool {
			for _, c := range r.status(pod.UID).ContainerStatuses {
				if w := c.State.Waiting; w != nil && w.Reason == "CreateContainerError" {
					t.Fatalf("what nobody can remove is a failed start: %s", w.Message)
				}
			}
			return isReady(r.status(pod.UID))
		})
		if got := r.status(pod.UID).ContainerStatuses[0]; got.RestartCount != 1 || got.LastTerminationState.Terminated != nil {
			t.Errorf("%+v", got)
		}
		tries := removals
		time.Sleep(time.Hour)
		if got := r.rt.Snapshot().Containers; len(got) != 2 || removals != tries || !isReady(r.status(pod.UID)) {
			t.Errorf("an hour later there are %d containers, tried to remove %d times: %+v", len(got), removals-tries, r.status(pod.UID))
		}
	})
}

// Each restart counts as one, though what cannot be removed stays beside.
func TestEachRestartCountsOnceBesideWhatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := ""
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": fakecri.Exits(time.Minute, 1)},
			Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
				switch q := req.(type) {
				case *runtimeapi.StartContainerRequest:
					if broken == "" {
						broken = q.GetContainerId()
					}
					return fakecri.Fault{Hang: broken == q.GetContainerId()}
				case *runtimeapi.RemoveContainerRequest:
					if q.GetContainerId() == broken {
						return fakecri.Fault{Err: status.Error(codes.FailedPrecondition, "cannot delete running task")}
					}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(time.Second)
		r.stop()
		r.start()
		r.reg.Set(pod, "api")
		r.reg.Ready("api")
		last := int32(-1)
		for range 3600 {
			time.Sleep(time.Second)
			if st := r.status(pod.UID); len(st.ContainerStatuses) > 0 {
				n := st.ContainerStatuses[0].RestartCount
				if last >= 1 && n > last+1 {
					t.Fatalf("restartCount goes from %d to %d", last, n)
				}
				if last = n; n >= 6 {
					return
				}
			}
		}
		t.Error("it was restarted less than six times in an hour")
	})
}
