package worker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func endedStatus(id string, code int32, reason string) *v1.PodStatus {
	end := &v1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: reason}
	return &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: end}}}}
}

func TestAnEndOfAContainerIsCountedOnceWhereverTheStatusShowsIt(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	running := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	first := endedStatus("1", 137, "OOMKilled")
	restarted := endedStatus("", 0, "").DeepCopy()
	restarted.ContainerStatuses[0].State = running.ContainerStatuses[0].State
	restarted.ContainerStatuses[0].LastTerminationState = first.ContainerStatuses[0].State
	m.ended(running, first)
	m.ended(first, restarted)
	if got := testutil.ToFloat64(m.life.terminated.WithLabelValues("container", "137", "OOMKilled")); got != 1 {
		t.Errorf("counted %v times; want once", got)
	}
}

func TestExitCodesAndReasonsMakeABoundedNumberOfSeries(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for i := range 5000 {
		m.ended(&v1.PodStatus{}, endedStatus(fmt.Sprint(i), int32(i*7919), fmt.Sprintf("Reason%d", i)))
	}
	if got := testutil.CollectAndCount(m.life.terminated); got > 257 {
		t.Errorf("%d series; want one per exit code at most", got)
	}
}

// Alerts divide what failed by what was started.
func TestWhatFailedCountsAmongWhatWasStarted(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	ownUsers := false
	pod := &v1.Pod{Spec: v1.PodSpec{HostUsers: &ownUsers, Containers: []v1.Container{{Name: "c"}}}}
	did := func(kind podstate.Kind, container string, err error) {
		o := outcome{err: err}
		o.action.Kind, o.action.Container = kind, container
		m.acted(pod, o, "Because")
	}
	fault := errors.New("fault")
	did(podstate.MakeSandbox, "", fault)
	did(podstate.MakeSandbox, "", nil)
	did(podstate.PullImage, "c", fault)
	did(podstate.PullImage, "c", nil)
	did(podstate.StartContainer, "c", fault)
	did(podstate.StartContainer, "c", nil)
	for name, test := range map[string]struct {
		got  prometheus.Collector
		want float64
	}{
		"pods": {m.startedPods, 2}, "pods that failed": {m.startedPodsErrors, 1},
		"pods with users of their own": {m.life.userns, 2}, "those that failed": {m.life.usernsErrors, 1},
		"containers":             {m.startedContainers.WithLabelValues("container"), 3}, // one without its image
		"containers that failed": {m.containerErrors.WithLabelValues("container", "Because"), 2},
	} {
		if got := testutil.ToFloat64(test.got); got != test.want {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
}

func TestReasonsOfRejectionsMakeABoundedNumberOfSeries(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for i := range 1000 {
		m.rejected(fmt.Sprintf("OutOfvendor.example/thing%d", i))
		m.rejected(fmt.Sprintf("Reason%d", i))
		m.rejected("OutOfcpu")
	}
	if got := testutil.CollectAndCount(m.rejections); got != 3 {
		t.Errorf("%d series; want one for what is known, one for resources and one for the rest", got)
	}
}
