package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// A node with many pods and few places is drained: each pod has its whole grace
// period, however many are stopped before it.
func TestADrainGivesEveryPodItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: 8 * time.Second})},
			Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
				if method == "StopPodSandbox" {
					return fakecri.Fault{Delay: 300 * time.Millisecond}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		var pods []*v1.Pod
		for i := range 110 {
			pod := newPod(fmt.Sprint("p", i), v1.Container{Image: "app:1"})
			pod.Spec.TerminationGracePeriodSeconds = new(int64(10))
			pods = append(pods, pod)
			r.reg.Set(pod, "api")
		}
		all := func(ok func(*v1.Pod) bool) func() bool {
			return func() bool { return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !ok(p) }) }
		}
		r.until("ready", time.Hour, all(func(p *v1.Pod) bool { return isReady(r.status(p.UID)) }))
		for _, p := range pods {
			r.reg.Set(deleted(p, 10), "api")
		}
		r.until("finished", time.Hour, all(func(p *v1.Pod) bool { return r.e.isFinished(p.UID) }))
		for _, p := range pods {
			if end := r.status(p.UID).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode == 137 {
				t.Errorf("pod %s, which ends 8 s after TERM, was killed within its 10 s: %+v", p.Name, end)
			}
		}
	})
}

// A runtime that is busy with a drain refuses some stops before it has sent any
// signal: what went by until the next try is missing from no grace period.
func TestAStopThatFailedIsTriedAgainWithTheWholeGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{After: 8 * time.Second})},
			Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
				if method == "StopContainer" && refused < 2 {
					refused++
					return fakecri.Fault{Delay: 2 * time.Second, Err: errors.New("failed to get task: context deadline exceeded")}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Set(deleted(pod, 10), "api")
		r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) })
		if end := r.status(pod.UID).ContainerStatuses[0].State.Terminated; refused != 2 || end == nil || end.ExitCode == 137 {
			t.Errorf("after %d stops that failed it ended as %+v", refused, end)
		}
	})
}
