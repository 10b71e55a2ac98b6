package worker

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
)

func TestAChangeOfAStatusOfManyContainersLooksAtEachOnce(t *testing.T) {
	steps.Grow(t, func(n int) {
		var old, now v1.PodStatus
		for i := range n {
			name := fmt.Sprint("c", i)
			old.ContainerStatuses = append(old.ContainerStatuses, v1.ContainerStatus{Name: name})
			ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: name}}
			now.ContainerStatuses = append(now.ContainerStatuses, v1.ContainerStatus{
				Name: name, LastTerminationState: ended, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			})
		}
		NewMetrics(prometheus.NewRegistry()).ended(&old, &now)
		if begin := beginWaiting(&old, &now); len(begin) != n {
			t.Fatalf("%d of %d begin to wait", len(begin), n)
		}
	})
}
