package gauges

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// node has two pods, one of them static, and one that ended.
type node struct{}

func (node) Runtime() observe.Runtime { return observe.Runtime{LastRelist: time.Unix(100, 5e8)} }

func (node) Count() (int, map[podstate.ContainerState]int) {
	return 2, map[podstate.ContainerState]int{podstate.StateRunning: 3, podstate.StateExited: 1}
}

func (node) Wanted() map[string]int  { return map[string]int{"kubernetes.io/secret": 2} }
func (node) Present() map[string]int { return map[string]int{"kubernetes.io/secret": 1} }

func (node) List() []podcache.Pod {
	pod := func(static bool, phase v1.PodPhase, conditions ...v1.PodCondition) podcache.Pod {
		return podcache.Pod{
			Pod: &v1.Pod{Spec: v1.PodSpec{EphemeralContainers: make([]v1.EphemeralContainer, 1)}}, Static: static,
			Status: v1.PodStatus{Phase: phase, Conditions: conditions},
		}
	}
	return []podcache.Pod{
		pod(true, v1.PodRunning), pod(false, v1.PodSucceeded),
		pod(false, v1.PodRunning, v1.PodCondition{Type: v1.PodResizePending, Reason: v1.PodReasonDeferred}, v1.PodCondition{Type: v1.PodResizeInProgress}),
	}
}

type workers struct{}

func (workers) Count() map[worker.Work]int {
	return map[worker.Work]int{{Config: "desired", Lifecycle: "sync", Static: true}: 1, {Config: "orphan", Lifecycle: "terminating"}: 4}
}

func TestTheSeriesCountWhatTheNodeHas(t *testing.T) {
	const want = `
		kubelet_active_pods{static=""} 1
		kubelet_active_pods{static="true"} 1
		kubelet_desired_pods{static=""} 2
		kubelet_desired_pods{static="true"} 1
		kubelet_managed_ephemeral_containers 3
		kubelet_mirror_pods 1
		kubelet_pleg_last_seen_seconds 100.5
		kubelet_pod_in_progress_resizes 1
		kubelet_pod_pending_resizes{reason="deferred"} 1
		kubelet_pod_pending_resizes{reason="infeasible"} 0
		kubelet_running_containers{container_state="created"} 0
		kubelet_running_containers{container_state="exited"} 1
		kubelet_running_containers{container_state="running"} 3
		kubelet_running_containers{container_state="unknown"} 0
		kubelet_running_pods 2
		kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1
		kubelet_working_pods{config="orphan",lifecycle="terminating",static=""} 4
		volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="actual_state_of_world"} 1
		volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="desired_state_of_world"} 2
	`
	if got := series(t, Gauges{Runtime: node{}, Workers: workers{}, Volumes: node{}, Pods: node{}, Mirrored: true}); got != trim(want) {
		t.Errorf("there are\n%s\nwant\n%s", got, trim(want))
	}
	alone := series(t, Gauges{Runtime: node{}, Workers: workers{}, Volumes: node{}, Pods: node{}})
	if !strings.Contains(alone, "kubelet_mirror_pods 0") {
		t.Errorf("without an apiserver there are\n%s", alone)
	}
}

// series are the lines of all that a collector says, in order.
func series(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			lines = append(lines, fmt.Sprint(name, " ", m.GetGauge().GetValue()))
		}
	}
	return strings.Join(lines, "\n")
}

func trim(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\t", "")
}
